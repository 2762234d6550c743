"""A trial in an object store, as the commands look at it."""

from __future__ import annotations

from holdfast.cli.paths import TrialLocation
from holdfast.cli.remote_runs import RemoteRun
from holdfast.cli.trials import PartOfExperiment
from holdfast.store.journal import Record


class RemoteTrial(PartOfExperiment, RemoteRun):
    def __init__(self, location: TrialLocation, records: list[Record] | None = None) -> None:
        super().__init__(location)
        self._experiment, self._trial = RemoteRun(location.experiment), location.trial
        self._records = records
