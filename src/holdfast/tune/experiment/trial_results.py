"""The results of an experiment's trials, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from holdfast.core.experiment.trial import Trial
from holdfast.errors import TrainingFailedError, WorkerGroupError
from holdfast.runs.experiments import own_records, rows_by_trial
from holdfast.runs.past import read_past
from holdfast.runs.stored_run import StoredRun
from holdfast.store.journal import Record
from holdfast.store.manifests import Manifest
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.result import Result
from holdfast.tune.experiment.live_experiment import LiveExperiment

Rows = list[dict[str, Any]]


class TrialResults(Sequence[Result]):
    """One for each trial, in their order."""

    def __init__(self, experiment: LiveExperiment, records: Callable[[], Iterable[Record]]) -> None:
        self._experiment, self._records = experiment, records
        self._trials = experiment.get_trials()

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._result(trial) for trial in self._trials[index]]
        return self._result(self._trials[index])

    @property
    def statuses(self) -> list[str]:
        return [trial.status for trial in self._trials]

    def rows(self, result: Result) -> Rows:
        """All reports of a trial."""
        return list(result._rows() if callable(result._rows) else result._rows)

    def _result(self, trial: Trial) -> Result:
        home = self._experiment.home_of(trial)
        manifests = [] if trial.has_ended and trial.checkpoint_number is None else self._manifests(trial)
        checkpoints = [(Checkpoint(home / "checkpoints" / m.id), m.metrics or {}) for m in manifests]
        return Result(
            metrics=dict(trial.last_result) or None,
            checkpoint=checkpoints[-1][0] if checkpoints else None,
            error=_error(trial),
            path=str(home),
            rows=lambda: self._all_rows.get(trial.trial_id, []),
            best_checkpoints=checkpoints,
            config=dict(trial.config),
            filesystem=home.filesystem,
        )

    def _manifests(self, trial: Trial) -> list[Manifest]:
        def counting() -> Callable[[Manifest], bool]:
            return read_past(self._own_records.get(trial.trial_id, ())).counts

        return StoredRun(self._experiment.home_of(trial)).store.checkpoints.scan(counting)[0]

    @cached_property
    def _own_records(self) -> dict[str, list[Record]]:
        return own_records(self._records())

    @cached_property
    def _all_rows(self) -> dict[str, Rows]:
        return rows_by_trial(self._records())


def _error(trial: Trial) -> TrainingFailedError | None:
    if trial.status != "ERROR":
        return None
    text = trial.error or "it failed"
    return WorkerGroupError(text, {0: RuntimeError(text)})
