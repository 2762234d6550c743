"""When trials stop. A stopper sees every result of every trial in order, so replaying the same results restores its
state. It does no I/O, and gets the time from a clock that is passed to it."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from holdfast.core.metric_names import flat_items, lookup, metric_number, number
from holdfast.train.checks import WrongTypeError, check_int, check_number
from holdfast.tune.foresight import next_decision
from holdfast.tune.recorded import Recorded
from holdfast.tune.result_metrics import TRAINING_ITERATION, reported_text

StopFunction = Callable[[str, dict[str, Any]], bool]
Clock = Callable[[], float]


class Stopper(Recorded):
    """The base class of stoppers. Override both methods, and pass an instance as ``RunConfig(stop=...)``.

    If ``__call__`` raises an exception, the trial that it was called for fails with it.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial is to stop after this result."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Return whether to stop the whole experiment."""
        raise NotImplementedError

    def next_decision(self, trial_id: str, iteration: int) -> float:
        """Return the next ``training_iteration`` at which ``__call__`` may return True.

        Until then the trial continues without waiting for an answer. A class that overrides only ``__call__`` is asked
        about each result.
        """
        return iteration + 1

    def use_clock(self, clock: Clock) -> None:
        """Take the seconds that the experiment has been running from ``clock``; for stoppers that look at time."""


class NoopStopper(Stopper):
    """Never stops anything."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def next_decision(self, trial_id: str, iteration: int) -> float:
        return math.inf

    def stop_all(self) -> bool:
        return False


class FunctionStopper(Stopper):
    """Stops a trial when ``function(trial_id, result)`` is true."""

    @classmethod
    def is_valid_function(cls, fn: Any) -> bool:
        return callable(fn) and not isinstance(fn, (Stopper, type))

    def __init__(self, function: StopFunction) -> None:
        if not callable(function):
            raise WrongTypeError(f"FunctionStopper(function={function!r}): pass a function of (trial_id, result)")
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        return False


class ThresholdStopper(Stopper):
    """Stops a trial when one of its metrics reaches its bound: what ``stop={"accuracy": 0.9}`` means.

    Nested metrics are named with slashes, or nested here as well. ``True`` is reached by a metric that is true. A
    metric that a result lacks is not reached. That is warned about once, as the name may be misspelt.
    """

    def __init__(self, bounds: Mapping[str, Any]) -> None:
        self._bounds: dict[str, float] = dict(flat_items(bounds))
        for metric, bound in self._bounds.items():
            if not isinstance(bound, bool):
                check_number(f"RunConfig(stop[{metric!r}]", bound)
        self._warned: set[str] = set()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return any(self._reached(metric, bound, result) for metric, bound in self._bounds.items())

    def next_decision(self, trial_id: str, iteration: int) -> float:
        return self._bounds[TRAINING_ITERATION] if self._bounds.keys() == {TRAINING_ITERATION} else iteration + 1

    def _reached(self, metric: str, bound: float, result: dict[str, Any]) -> bool:
        found = lookup(result, metric)
        value = float(found) if isinstance(found, bool) else number(found)
        if value is None and metric not in self._warned:
            self._warned.add(metric)
            warnings.warn(
                f"stop: trials that never report a number {metric!r} run until they finish. A result without "
                f"it: {reported_text(result, metric)}",
                UserWarning,
                stacklevel=2,
            )
        return value is not None and value >= bound

    def stop_all(self) -> bool:
        return False


class MaximumIterationStopper(Stopper):
    """Stops each trial after ``max_iter`` results.

    It reads ``training_iteration`` from the results, so results that are repeated after a failure are not counted
    twice.
    """

    def __init__(self, max_iter: int) -> None:
        check_int("MaximumIterationStopper(max_iter", max_iter, least=1)
        self._max_iter = max_iter
        self._seen: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        iteration = number(result.get(TRAINING_ITERATION))
        if iteration is None:
            iteration = self._seen[trial_id] = self._seen.get(trial_id, 0) + 1
        return iteration >= self._max_iter

    def next_decision(self, trial_id: str, iteration: int) -> float:
        return self._max_iter

    def stop_all(self) -> bool:
        return False


class TimeoutStopper(Stopper):
    """Stops the experiment when it has been running for ``timeout`` (seconds or a timedelta).

    Time starts at the first call. In an experiment, the time before an interruption counts, but not the time until the
    restore. A pickled stopper likewise continues with the time that was left.
    """

    def __init__(self, timeout: float | timedelta, *, clock: Clock = time.monotonic) -> None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        check_number("TimeoutStopper(timeout", seconds, least=0)
        self._timeout_s = float(seconds)
        self._clock = clock
        self._started: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        spent = None if self._started is None else self._clock() - self._started
        return {**self.__dict__, "_started": spent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._started is not None:
            self._started = self._clock() - self._started

    def use_clock(self, clock: Clock) -> None:
        self._clock, self._started = clock, 0.0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def next_decision(self, trial_id: str, iteration: int) -> float:
        return math.inf

    def stop_all(self) -> bool:
        now = self._clock()
        if self._started is None:
            self._started = now
        return now - self._started >= self._timeout_s


class TrialPlateauStopper(Stopper):
    """Stops a trial when ``metric`` hardly changes: the standard deviation of its last ``num_results`` values is below
    ``std``.

    It does not stop a trial before ``grace_period`` results. With ``metric_threshold``, it does not stop one while its
    value is worse than that (above it for mode "min", below it for "max"). A window with a missing value or NaN is not
    a plateau.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        check_number("TrialPlateauStopper(std", std, least=0)
        check_int("TrialPlateauStopper(num_results", num_results, least=1)
        check_int("TrialPlateauStopper(grace_period", grace_period, least=0)
        if metric_threshold is not None:
            check_number("TrialPlateauStopper(metric_threshold", metric_threshold)
            if mode not in ("min", "max"):
                raise ValueError(f'TrialPlateauStopper(mode={mode!r}): metric_threshold needs "min" or "max"')
        self._metric, self._mode, self._threshold = metric, mode, metric_threshold
        self._std, self._num_results, self._grace_period = std, num_results, grace_period
        self._seen: dict[str, int] = {}
        self._windows: dict[str, deque[float]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = number(lookup(result, self._metric))
        window = self._windows.setdefault(trial_id, deque(maxlen=self._num_results))
        window.append(math.nan if value is None else value)
        seen = self._seen[trial_id] = self._seen.get(trial_id, 0) + 1
        if seen < self._grace_period or len(window) < self._num_results:
            return False
        return self._good_enough(window[-1]) and _deviation(window) < self._std

    def _good_enough(self, value: float) -> bool:
        if self._threshold is None:
            return True
        return value <= self._threshold if self._mode == "min" else value >= self._threshold

    def stop_all(self) -> bool:
        return False


class ExperimentPlateauStopper(Stopper):
    """Stops the experiment when the ``top`` best values of ``metric``, of all trials, no longer differ much.

    That is when their standard deviation has been at most ``std`` for another ``patience`` results. Results without a
    finite value are ignored.
    """

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        check_number("ExperimentPlateauStopper(std", std, above=0)
        check_int("ExperimentPlateauStopper(top", top, least=2)
        check_int("ExperimentPlateauStopper(patience", patience, least=0)
        if mode not in ("min", "max"):
            raise ValueError(f'ExperimentPlateauStopper(mode={mode!r}): use "min" or "max"')
        self._metric, self._mode = metric, mode
        self._std, self._top, self._patience = std, top, patience
        self._best: list[float] = []
        self._waited = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        value = metric_number(result, self._metric)
        if value is not None:
            self._best = sorted([*self._best, value], reverse=self._mode == "max")[: self._top]
            self._waited = self._waited + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        return len(self._best) == self._top and _deviation(self._best) <= self._std

    def stop_all(self) -> bool:
        return self.has_plateaued() and self._waited >= self._patience


class CombinedStopper(Stopper):
    """Stops when any of the given stoppers does. All of them see every result."""

    def __init__(self, *stoppers: Stopper) -> None:
        wrong = [stopper for stopper in stoppers if not isinstance(stopper, Stopper)]
        if wrong:
            raise WrongTypeError(f"CombinedStopper({wrong[0]!r}): pass stoppers; wrap a function in FunctionStopper")
        self._stoppers = stoppers

    def use_clock(self, clock: Clock) -> None:
        for stopper in self._stoppers:
            stopper.use_clock(clock)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        verdicts = [stopper(trial_id, result) for stopper in self._stoppers]
        return any(verdicts)

    def next_decision(self, trial_id: str, iteration: int) -> float:
        said = (next_decision(stopper, "__call__", trial_id, iteration) for stopper in self._stoppers)
        return min(said, default=math.inf)

    def stop_all(self) -> bool:
        verdicts = [stopper.stop_all() for stopper in self._stoppers]
        return any(verdicts)


def as_stopper(
    stop: Mapping[str, Any] | StopFunction | Stopper | list[Stopper] | None,
    time_budget_s: float | timedelta | None = None,
) -> Stopper:
    """What ``RunConfig(stop=)`` and ``TuneConfig(time_budget_s=)`` mean together, as one stopper."""
    stopper = _stopper(stop)
    if time_budget_s is None:
        return stopper
    timeout = TimeoutStopper(time_budget_s)
    return timeout if isinstance(stopper, NoopStopper) else CombinedStopper(stopper, timeout)


def _stopper(stop: Any) -> Stopper:
    if isinstance(stop, Stopper):
        return stop
    if stop is None or (isinstance(stop, (Mapping, list)) and not stop):
        return NoopStopper()
    if isinstance(stop, Mapping):
        return ThresholdStopper(stop)
    if isinstance(stop, list):
        return CombinedStopper(*stop)
    if callable(stop) and not isinstance(stop, type):
        if hasattr(stop, "stop_all"):
            raise WrongTypeError(
                f"RunConfig(stop={stop!r}): has stop_all but is not a Stopper. Subclass holdfast.tune.Stopper."
            )
        return FunctionStopper(stop)
    raise WrongTypeError(f"RunConfig(stop={stop!r}): pass a dict of metrics and bounds, a function or a Stopper")


def _deviation(values: deque[float] | list[float]) -> float:
    """The population's standard deviation; NaN if a value is not finite, inf if they are too far apart."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values))
