"""An experiment as it is stored, and its trials: runs whose journal is a part of the experiment's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.errors import NotARunError, StorageError, StorageUnavailableError, TrainingFailedError, WorkerGroupError
from holdfast.store.interfaces import LivingDriver
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest
from holdfast.store.sealed import Damage

from .experiments import (
    ExperimentRecord,
    TrialRecord,
    account,
    is_experiment,
    own_records,
    rows_by_trial,
)
from .past import Past
from .reading import Reading
from .stored_run import PATIENCE_S, StoredRun


class StoredExperiment(StoredRun):
    @classmethod
    def of(cls, stored: StoredRun) -> StoredExperiment:
        """The same with what it has read."""
        made = cls(stored.location, stored.patience_s)
        made.__dict__.update(stored.__dict__)
        return made

    def replay(self, records: list[Record] | None = None) -> ExperimentRecord:
        """The result of the journal: the only place that folds it for readers."""
        return account(self.location, self.known_identity(), self.records() if records is None else records)

    def look(self) -> tuple[ExperimentRecord, LivingDriver | None]:
        """Without a driver no trial is running, although the last driver may have written so."""
        driver = self.driver()
        found = self.replay()
        for trial in found.trials.values() if driver is None else ():
            if trial.status == "RUNNING":
                trial.status = "PENDING"
        return found, driver

    def trial(self, name: str) -> StoredTrial:
        """By directory, name or id. NotARunError if there is none."""
        trial = self.replay().find(name)
        return StoredTrial(self, trial.id, trial.directory)

    def trials(self, found: ExperimentRecord) -> Iterator[tuple[TrialRecord, StoredTrial]]:
        """The trials that have started. The journal is read once for all of them."""
        own = own_records(self.records())
        for trial in found.trials.values():
            if trial.id in own:
                yield trial, StoredTrial(self, trial.id, trial.directory, own[trial.id])


class StoredTrial(StoredRun):
    def __init__(
        self, experiment: StoredExperiment, id: str, directory: str, records: list[Record] | None = None
    ) -> None:
        """``records``: the trial's own, if they are known already."""
        super().__init__(experiment.location / directory, experiment.patience_s, once=experiment.is_once)
        self.experiment, self.id = experiment, id
        self._records = records

    def run_id(self) -> str:
        """A trial that started over has a new id."""
        began = next((record.seq for record in self.records()), 0)
        return f"{self.experiment.run_id()}/{self.id}/{began}"

    def look_again(self, *, keeps_journal: bool = False) -> None:
        super().look_again(keeps_journal=keeps_journal)
        self.experiment.look_again(keeps_journal=keeps_journal)

    def journal_stamp(self) -> int | None:
        return self.experiment.journal_stamp()

    def driver(self) -> LivingDriver | None:
        """The driver of the trial. A trial that has ended has none, even if its experiment has one."""
        driver = self.experiment.driver()
        return None if driver is None or self.past(self.records()).ended is not None else driver

    def run_file_damage(self) -> list[Damage]:
        return self.experiment.run_file_damage()

    def journal(self) -> tuple[list[Record], list[Damage]]:
        if self._records is not None:
            return self._records, []
        return self.of_journal("own", self._own_journal)

    def _own_journal(self) -> tuple[list[Record], list[Damage]]:
        records, damage = self.experiment.journal()
        return own_records(records).get(self.id, []), damage

    def _identity(self) -> dict[str, Any]:
        """The content that a run.json of the trial would have."""
        identity = self.experiment.identity()
        records = self.experiment.records()
        trial = account(self.experiment.location, identity, records).trials[self.id]
        spec = self.past(own_records(records).get(self.id, [])).state.spec
        return {
            "kind": "trial",
            "trial": {"id": trial.id, "name": trial.name, "status": trial.status, "reason": trial.reason},
            "experiment": str(self.experiment.location),
            "trainer": identity.get("trainable"),
            "scaling": {"num_workers": spec.num_workers},
            "failure": identity.get("failure"),
            "checkpoint": identity.get("checkpoint"),
            "train_loop_config": dict(trial.config),
        }

    def read(self, *, with_driver: bool = True, with_manifests: bool = True) -> TrialReading:
        driver = self.driver() if with_driver else None
        manifests = self.manifests()[0] if with_manifests else []
        (records, _), (own, damage) = self.experiment.journal(), self.journal()
        trial = self.experiment.replay(records).trials[self.id]
        return TrialReading(self, driver, manifests, own, self.past(own, damage), trial, records)


class TrialReading(Reading):
    """As a run's, with the results as the experiment has them."""

    def __init__(
        self,
        run: StoredTrial,
        driver: LivingDriver | None,
        manifests: list[Manifest],
        records: list[Record],
        past: Past,
        trial: TrialRecord,
        all_records: list[Record],
    ) -> None:
        super().__init__(run, driver, manifests, records, past)
        self._trial, self._all_records = trial, all_records

    @property
    def config(self) -> dict[str, Any]:
        return dict(self._trial.config)

    @property
    def error(self) -> TrainingFailedError | None:
        trial = self._trial
        return WorkerGroupError(trial.error, {0: RuntimeError(trial.error)}) if trial.status == "ERROR" else None

    @property
    def metrics(self) -> dict[str, Any] | None:
        return dict(self._trial.result) or None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        id = self._trial.id
        return rows_by_trial(r for r in self._all_records if r.body.get("trial", id) == id).get(id, [])


def open_stored(location: Location, patience_s: float = PATIENCE_S, *, once: bool = False) -> StoredRun:
    """The run, experiment or trial there. NotARunError if there is none; NewerFormatError if a newer version of
    Holdfast has written it; StorageUnavailableError if that is unknown. ``once``: for one look, which reads each
    file once."""
    stored = StoredRun(location, patience_s, once=once)
    try:
        if is_experiment(stored.identity()):
            return StoredExperiment.of(stored)
    except NotARunError:
        trial = trial_at(location, patience_s, once=once)
        if trial is None:
            raise
        return trial
    except StorageUnavailableError:
        raise
    except StorageError:
        pass  # its identity was lost, which is listed as damage
    return stored


def trial_at(location: Location, patience_s: float = PATIENCE_S, *, once: bool = False) -> StoredTrial | None:
    """The trial whose directory, or the last part of whose path as its name or id, that is; None if it is none of an
    experiment's."""
    experiment = StoredExperiment(location.parent, patience_s, once=once)
    if not is_experiment(experiment.known_identity()):
        return None
    return experiment.trial(location.name)


def load(path: Location | Path, patience_s: float = PATIENCE_S) -> Reading:
    """A run or a trial at one look. NotARunError if it is neither."""
    location = Location.parse("load(path", path)
    stored = open_stored(location, patience_s)
    if isinstance(stored, StoredExperiment):
        raise NotARunError(
            f"{location} is an experiment, with a result for each trial. Pass a trial's directory, or use "
            "Tuner.restore(path, trainable).get_results()"
        )
    return stored.read(with_driver=False)
