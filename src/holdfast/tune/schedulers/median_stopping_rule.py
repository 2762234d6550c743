"""The median stopping rule: a trial stops if its best result is worse than the median of the other trials' averages.

An average covers the results from ``grace_period`` up to the time of the report. Only trials that have come as far
count. See "Google Vizier: A Service for Black-Box Optimization", section 3.2.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from statistics import median
from typing import Any

from holdfast.train.checks import check_int, check_number

from .decision import Decision
from .scoring import WORST, ScoreReading, ScoringScheduler
from .trial_scheduler import PAUSED, PENDING, ExperimentView, Requests, TrialView


class MedianStoppingRule(ScoringScheduler):
    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr, metric, mode)
        check_number("MedianStoppingRule(grace_period", grace_period, least=0)
        check_int("MedianStoppingRule(min_samples_required", min_samples_required, least=0)
        check_number("MedianStoppingRule(min_time_slice", min_time_slice, least=0)
        self._grace_period = grace_period
        self._min_samples_required = min_samples_required
        self._min_time_slice = min_time_slice
        self._hard_stop = hard_stop
        self._courses: dict[str, Course] = {}
        self._stopped: set[str] = set()
        self._last_pause: dict[str, float] = {}

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        self._check_objective()
        return ()

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        reading = self._read(trial, result)
        if isinstance(reading, Decision):
            return reading
        if trial.trial_id in self._stopped:
            return self.STOP if self._hard_stop else self.CONTINUE
        course = self._record(trial.trial_id, reading)
        if reading.time < self._grace_period:
            return self.CONTINUE
        averages = [
            average
            for other, past in self._courses.items()
            if other != trial.trial_id and (average := past.average(reading.time)) is not None
        ]
        if not averages or len(averages) < self._min_samples_required:
            return self._on_insufficient_samples(experiment, trial, reading.time)
        middle = median(averages)
        if course.best >= middle:
            return self.CONTINUE
        self._stopped.add(trial.trial_id)
        best = "it has no finite value" if course.best == WORST else f"its best, {self._shown(course.best)}, is worse"
        reason = f"at {self._time_attr}={reading.time:g} {best}; the median of the others is {self._shown(middle)}"
        return Decision("STOP" if self._hard_stop else "PAUSE", reason)

    def _record(self, trial_id: str, reading: ScoreReading) -> Course:
        course = self._courses.setdefault(trial_id, Course())
        course.add(reading, self._grace_period)
        return course

    def _on_insufficient_samples(self, experiment: ExperimentView, trial: TrialView, time: float) -> Decision:
        """Pause for trials that wait, so that there is something to compare with."""
        others = (other for other in experiment.get_live_trials() if other.trial_id != trial.trial_id)
        due = time - self._last_pause.get(trial.trial_id, -math.inf) > self._min_time_slice
        if due and any(other.status in (PENDING, PAUSED) for other in others):
            self._last_pause[trial.trial_id] = time
            return Decision("PAUSE", "too few trials have come this far to compare with; others wait")
        return self.CONTINUE

    def on_trial_complete(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Requests:
        reading = self._read(trial, result)
        if isinstance(reading, ScoreReading):
            self._record(trial.trial_id, reading)
        self._last_pause.pop(trial.trial_id, None)
        return ()

    def debug_string(self) -> str:
        return f"MedianStoppingRule: {len(self._stopped)} stopped"


class Course:
    """The results of one trial in 16 bytes each: their times, and the sums of their scores up to each of them."""

    def __init__(self) -> None:
        self.best = WORST
        self.last = -math.inf
        self.times = array("d")
        self.sums = array("d")

    def add(self, reading: ScoreReading, since: float) -> None:
        """Results that a restarted trial repeats are known already."""
        if reading.time <= self.last:
            return
        self.last = reading.time
        self.best = max(self.best, reading.score)
        if reading.time >= since and math.isfinite(reading.score):
            self.times.append(reading.time)
            self.sums.append(reading.score + (self.sums[-1] if self.sums else 0.0))

    def average(self, time: float) -> float | None:
        """The average of all finite scores up to a time; None if the trial has not come so far or has none."""
        count = bisect_right(self.times, time)
        return self.sums[count - 1] / count if count and self.last >= time else None
