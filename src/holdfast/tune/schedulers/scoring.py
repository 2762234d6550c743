"""What all schedulers that compare trials by a metric have in common.

A score is the metric with the sign that makes larger better. NaN and infinities are the worst score in both modes: a
trial that has diverged never wins. A missing metric is an error of that trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.core.metric_names import lookup, number
from holdfast.train.ray_variables import NO_METRIC_CHECK, is_on
from holdfast.tune.result_metrics import AUTO_KEYS, DEFAULT_METRIC

from .decision import Decision
from .trial_scheduler import FIFOScheduler, TrialView

WORST = -math.inf


class ScoreReading(NamedTuple):
    time: float
    score: float


class ScoringScheduler(FIFOScheduler):
    _require_time = False

    def __init__(self, time_attr: str, metric: str | None, mode: str | None, seed: int | None = None) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f'{type(self).__name__}(mode={mode!r}): must be "min" or "max"')
        if not isinstance(time_attr, str):
            raise TypeError(f"{type(self).__name__}(time_attr={time_attr!r}): pass the name of a value of the results")
        self._time_attr = time_attr
        self._metric = metric
        self._mode = mode
        self._seed = seed

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        if not super().set_search_properties(metric, mode, **spec):
            return False
        if self._mode and not self._metric:
            self._metric = DEFAULT_METRIC
        return True

    def _check_objective(self) -> None:
        if self._metric is None or self._mode not in ("min", "max"):
            name = type(self).__name__
            raise ValueError(
                f"{name} has metric={self._metric!r} and mode={self._mode!r}: pass both to TuneConfig or to {name}"
            )

    def _read(self, trial: TrialView, result: Mapping[str, Any]) -> ScoreReading | Decision:
        """The time and the score of a result, or what to do with a trial whose result lacks them."""
        value, time = (lookup(result, name or "") for name in (self._metric, self._time_attr))
        metric, moment = number(value), number(time)
        if metric is None and value is None and is_on(NO_METRIC_CHECK):
            return Decision("CONTINUE", f"{type(self).__name__}: this result has no {self._metric!r}")
        if metric is None:
            return self._lacks(trial, result, "metric", self._metric, value)
        if moment is None or math.isnan(moment):
            if self._require_time:
                return self._lacks(trial, result, "time_attr", self._time_attr, time)
            return Decision("CONTINUE", f"{type(self).__name__}: this result has no {self._time_attr!r}")
        return ScoreReading(moment, self._score(metric))

    def _lacks(
        self, trial: TrialView, result: Mapping[str, Any], argument: str, name: str | None, value: Any
    ) -> Decision:
        what = "is not in the result" if value is None else f"is {value!r}, which is not a number, in the result"
        there = ", ".join(sorted(map(str, set(result) - AUTO_KEYS))) or "nothing"
        return Decision(
            "ERROR",
            f"{name!r}, the {argument} of {type(self).__name__}, {what} of trial {trial.trial_id} "
            f"(reported: {there}). Report it each time, or name another one",
        )

    def _score(self, metric: float) -> float:
        if not math.isfinite(metric):
            return WORST
        return metric if self._mode == "max" else -metric

    def _shown(self, score: float) -> str:
        """Turn a score back into the metric."""
        return f"{self._metric}={score if self._mode == 'max' else -score:g}"
