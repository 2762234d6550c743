"""How a search went, in one pass over its journal: trials, learning curves, what was stopped, who copied whom.

It takes in records as they come, so that a search that runs is not folded from its beginning at every look. Memory is
bounded for each trial: a long learning curve keeps every second, fourth, ... result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.records import replayed
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.metric_names import flat_items, metric_number, number
from holdfast.store.journal import Record

from .experiments import TrialRecord

_POINTS = 128  # of a learning curve, and at most twice as many while it grows


@dataclass(frozen=True)
class ExploitRecord:
    time: float
    trial: str
    donor: str
    iteration: int  # of the trial that copies
    before: Mapping[str, Any]
    after: Mapping[str, Any]


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
        self.stops: dict[str, tuple[int, str]] = {}  # iteration and reason
        self.exploits: list[ExploitRecord] = []
        self.improvements: list[Improvement] = []
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
                case ev.Resumed(trial, True):
                    self.curves.pop(trial, None)

    def _report(self, event: ev.Reported, time: float) -> None:
        self.results += 1
        if event.answer is not None and event.answer.action == "STOP":
            self.stops[event.trial] = event.iteration, event.answer.reason
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
        best = self.improvements[-1].value if self.improvements else None
        if self.mode in ("min", "max") and (best is None or (value > best if self.mode == "max" else value < best)):
            self.improvements.append(Improvement(self.results, time, value, event.trial))
