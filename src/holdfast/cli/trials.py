"""A trial of an experiment as the commands look at it: a run whose journal is a part of the experiment's."""

from __future__ import annotations

from typing import Any

from holdfast.cli.lease_probe import LivingDriver
from holdfast.cli.paths import READ_PATIENCE_S, TrialLocation
from holdfast.cli.runs import LocalRun, Run
from holdfast.errors import StorageError, StorageUnavailableError
from holdfast.runs import experiments
from holdfast.runs.history import read_identity, read_records
from holdfast.runs.past import read_past
from holdfast.store.journal import Record
from holdfast.store.sealed import Damage


def open_trial(location: TrialLocation, records: list[Record] | None = None) -> Run:
    """``records``: the trial's own, if they are known already."""
    if location.path is not None:
        return LocalTrial(location, records)
    from holdfast.cli.remote_trials import RemoteTrial

    return RemoteTrial(location, records)


class PartOfExperiment:
    """What a trial has from its experiment."""

    _experiment: Run
    _trial: str
    _records: list[Record] | None

    def driver(self) -> LivingDriver | None:
        """A trial that has ended has none, although its experiment may."""
        driver = self._experiment.driver()
        return None if driver is None or read_past(self.journal()[0]).ended is not None else driver

    def run_file_damage(self) -> list[Damage]:
        return self._experiment.run_file_damage()

    def journal(self) -> tuple[list[Record], list[Damage]]:
        if self._records is not None:
            return self._records, []
        records, damage = self._experiment.journal()
        return experiments.own_records(records, self._trial), damage

    def journal_files(self) -> int:
        return self._experiment.journal_files()


class LocalTrial(PartOfExperiment, LocalRun):
    def __init__(self, location: TrialLocation, records: list[Record] | None = None) -> None:
        super().__init__(location)
        self._experiment, self._trial = LocalRun(location.experiment), location.trial
        self._records = records


def identity_of(location: TrialLocation) -> dict[str, Any]:
    """What a run.json of the trial's own would say; empty if the experiment's is lost."""
    try:
        identity = read_identity(location.experiment, READ_PATIENCE_S)
    except StorageUnavailableError:
        raise
    except StorageError:
        return {}
    records = read_records(location.experiment, READ_PATIENCE_S)
    trial = experiments.account(location.experiment, identity, records).trials[location.trial]
    spec = read_past(experiments.own_records(records, trial.id)).state.spec
    return {
        "kind": "trial",
        "trial": {"id": trial.id, "name": trial.name, "status": trial.status, "reason": trial.reason},
        "experiment": str(location.experiment),
        "trainer": identity.get("trainable"),
        "scaling": {"num_workers": spec.num_workers},
        "failure": identity.get("failure"),
        "checkpoint": identity.get("checkpoint"),
        "train_loop_config": dict(trial.config),
    }
