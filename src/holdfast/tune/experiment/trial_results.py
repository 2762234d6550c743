"""The results of an experiment's trials, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

from holdfast.core.experiment.trial import Trial
from holdfast.errors import TrainingFailedError, WorkerGroupError, with_type_of_cause
from holdfast.runs.experiments import ExperimentRecord, own_records, rows_by_trial
from holdfast.runs.past import Past, read_past
from holdfast.runs.reading import by_worth, metrics_with
from holdfast.runs.stored_run import StoredRun
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.result import Result

Rows = list[dict[str, Any]]


class TrialsOfExperiment(Protocol):
    failures: dict[str, Exception]  # of trials that failed under the driver of this process

    def get_trials(self) -> Sequence[Trial]: ...
    def home_of(self, trial: Trial) -> Location: ...


class StoredTrials:
    """Trials of a stored experiment that has no driver in this process."""

    def __init__(self, location: Location, experiment: ExperimentRecord) -> None:
        self._location, self._experiment = location, experiment
        self.failures: dict[str, Exception] = {}

    def get_trials(self) -> Sequence[Trial]:
        return [record.trial for record in self._experiment.trials.values()]

    def home_of(self, trial: Trial) -> Location:
        return self._location / trial.directory


class TrialResults(Sequence[Result]):
    """The results of all trials, in order."""

    def __init__(self, experiment: TrialsOfExperiment, records: Callable[[], Iterable[Record]]) -> None:
        self._experiment, self._records = experiment, records
        self._trials = experiment.get_trials()

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._result(trial) for trial in self._trials[index]]
        return self._result(self._trials[index])

    def with_trials(self) -> Iterator[tuple[Trial, Location, Result]]:
        for trial in self._trials:
            yield trial, self._experiment.home_of(trial), self._result(trial)

    @property
    def statuses(self) -> list[str]:
        return [trial.status for trial in self._trials]

    def rows(self, result: Result) -> Rows:
        """All reports of a trial."""
        return list(result._rows() if callable(result._rows) else result._rows)

    def _result(self, trial: Trial) -> Result:
        home = self._experiment.home_of(trial)
        manifests, past = self._kept(trial)
        place = home / "checkpoints"
        return Result(
            metrics=dict(trial.last_result),
            checkpoint=Checkpoint(place / manifests[-1].id) if manifests else None,
            error=_error(trial, self._experiment.failures.get(trial.trial_id)),
            path=str(home),
            rows=lambda: self._all_rows.get(trial.trial_id, []),
            best_checkpoints=[(Checkpoint(place / m.id), metrics_with(m, past)) for m in by_worth(manifests, past)],
            config=dict(trial.config),
            filesystem=home,
        )

    def _kept(self, trial: Trial) -> tuple[list[Manifest], Past]:
        """The checkpoints of a trial, the newest last, and their records in the journal."""
        if trial.has_ended and trial.checkpoint_number is None:
            return [], Past()
        past = read_past(self._own_records.get(trial.trial_id, ()))
        manifests = StoredRun(self._experiment.home_of(trial)).store.checkpoints.scan(lambda: past.counts)[0]
        return manifests, past

    @cached_property
    def _own_records(self) -> dict[str, list[Record]]:
        return own_records(self._records())

    @cached_property
    def _all_rows(self) -> dict[str, Rows]:
        return rows_by_trial(self._records())


def _error(trial: Trial, failure: Exception | None) -> TrainingFailedError | None:
    """``failure``: the exception that this driver has seen. For earlier failures, the journal has the text."""
    if trial.status != "ERROR":
        return None
    text = trial.error or "it failed"
    if isinstance(failure, WorkerGroupError):
        return with_type_of_cause(WorkerGroupError(text, failure.worker_failures))
    return WorkerGroupError(text, {0: RuntimeError(text)})
