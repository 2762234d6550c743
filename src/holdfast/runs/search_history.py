"""The history of a search, in one pass over its journal: trials, learning curves, stopped trials, copies.

It accepts records as they arrive, so that a running search is not folded from its beginning each time. Memory is
bounded for each trial: a long learning curve keeps every second, fourth, ... result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.records import replayed
from holdfast.core.experiment.scheduler_requests import StopTrial
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.metric_names import flat_items, metric_number, number
from holdfast.store.journal import Record

from .experiments import TrialRecord

_AT_THE_END = "reached"  # the last iteration that a scheduler allows, as schedulers say it
_POINTS = 128  # of a learning curve, and at most twice as many while it grows


@dataclass(frozen=True)
class ExploitRecord:
    time: float
    trial: str
    donor: str
    iteration: int  # of the trial that copies
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    continued: int = 0  # the iteration of its first result behind the copy; 0 before that


@dataclass(frozen=True)
class Improvement:
    """A result that was better than all before it."""

    results: int  # so many there were by then
    time: float
    value: float
    trial: str


class LearningCurve:
    __slots__ = ("_count", "_stride", "points")

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._stride = 1
        self._count = 0

    def add(self, iteration: int, value: float) -> None:
        while self.points and self.points[-1][0] >= iteration:  # it was reported again after a failure
            self.points.pop()
        self._count += 1
        if self._count % self._stride == 0:
            self.points.append((iteration, value))
            if len(self.points) >= 2 * _POINTS:
                self.points = self.points[1::2]
                self._stride *= 2


class SearchHistory:
    def __init__(self, identity: Mapping[str, Any]) -> None:
        self.metric = str(identity.get("metric") or "")
        self.mode = str(identity.get("mode") or "")
        self._state = ExperimentState()
        self._taken = 0
        self.curves: dict[str, LearningCurve] = {}
        self.began: dict[str, float] = {}
        self.stops: dict[str, tuple[int, str]] = {}  # by the scheduler, before their end: iteration and reason
        self.exploits: list[ExploitRecord] = []
        self._copying: dict[str, int] = {}  # trials without a result since, with their place in ``exploits``
        self.improvements: list[Improvement] = []
        self.best_values: dict[str, float] = {}  # of each trial; of all of its results, as of a display in a terminal
        self.results = 0

    @property
    def is_over(self) -> bool:
        return self._state.is_over

    @property
    def changed(self) -> float | None:
        return self._state.changed

    def trials(self) -> list[TrialRecord]:
        return [TrialRecord(trial) for trial in self._state.trials.values()]

    def take(self, records: Sequence[Record]) -> None:
        """``records``: the whole journal; those of the last time are passed over."""
        if len(records) < self._taken:  # another journal
            raise ValueError("the journal has become shorter")
        new, self._taken = records[self._taken :], len(records)
        configs = {id: trial.config for id, trial in self._state.trials.items() if not trial.has_ended}
        for record, event in replayed(self._state, new, Policy()):
            self._note_stops(event)
            match event:
                case ev.Added(trial, config):
                    configs[trial] = config
                case ev.Started(trial):
                    self.began.setdefault(trial, record.time)
                case ev.Reported():
                    self._report(event, record.time)
                case ev.Exploited(trial, donor):
                    curve = self.curves.get(trial)
                    iteration = curve.points[-1][0] if curve and curve.points else 0
                    self.exploits.append(
                        ExploitRecord(record.time, trial, donor, iteration, configs.get(trial, {}), event.config)
                    )
                    configs[trial] = event.config
                    self._copying[trial] = len(self.exploits) - 1
                case ev.Resumed(trial, anew):
                    self.stops.pop(trial, None)
                    if anew:
                        self.curves.pop(trial, None)

    def _note_stops(self, event: ev.Event) -> None:
        """A scheduler stops the trial that it is asked about, or others, which may be paused."""
        answer: ev.Answer | None = getattr(event, "answer", None)
        if answer is None:
            return
        if isinstance(event, ev.Reported) and answer.action == "STOP" and answer != ev.CRITERION_MET:
            self._stop(event.trial, event.iteration, answer.reason)
        for request in answer.requests:
            trial = self._state.trials.get(request.trial_id)
            if isinstance(request, StopTrial) and trial is not None:
                self._stop(request.trial_id, trial.results, request.reason)

    def _stop(self, trial: str, iteration: int, reason: str) -> None:
        if not reason.startswith(_AT_THE_END):
            self.stops[trial] = iteration, reason

    def _report(self, event: ev.Reported, time: float) -> None:
        self.results += 1
        copied = self._copying.pop(event.trial, None)
        if copied is not None:
            self.exploits[copied] = replace(self.exploits[copied], continued=event.iteration)
        if not self.metric:  # the first number of the first result
            names = (name for name, value in flat_items(event.metrics) if number(value) is not None)
            self.metric = next(names, "")
        value = metric_number(event.metrics, self.metric)
        if value is None:
            return
        curve = self.curves.get(event.trial)
        if curve is None:
            curve = self.curves[event.trial] = LearningCurve()
        curve.add(event.iteration, value)
        if self._is_better(value, self.best_values.get(event.trial)):
            self.best_values[event.trial] = value
            if self._is_better(value, self.improvements[-1].value if self.improvements else None):
                self.improvements.append(Improvement(self.results, time, value, event.trial))

    def _is_better(self, value: float, known: float | None) -> bool:
        if self.mode not in ("min", "max"):
            return False
        return known is None or (value > known if self.mode == "max" else value < known)
