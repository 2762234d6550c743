"""Stoppers against hand-computed cases, and restored by being fed the same results again."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    ThresholdStopper,
    TimeoutStopper,
    TrialPlateauStopper,
    as_stopper,
)


def always(_trial_id: str, _result: dict[str, Any]) -> bool:
    return True


def verdicts(stopper: Stopper, values: list[Any], trial_id: str = "a", metric: str = "loss") -> list[bool]:
    return [stopper(trial_id, {metric: value}) for value in values]


def test_the_maximum_of_iterations_is_each_trials_own() -> None:
    stopper = MaximumIterationStopper(2)
    assert [stopper(trial, {"x": 1}) for trial in ("a", "b", "a", "b")] == [False, False, True, True]
    assert not stopper.stop_all()


def test_iterations_that_are_done_again_after_a_failure_do_not_count_twice() -> None:
    stopper = MaximumIterationStopper(4)
    iterations = [1, 2, 3, 2, 3, 4]
    assert [stopper("a", {"training_iteration": i}) for i in iterations] == [False] * 5 + [True]


def test_the_timeout_counts_from_the_first_question_by_the_clock_it_is_given() -> None:
    now = 100.0
    stopper = TimeoutStopper(timedelta(seconds=10), clock=lambda: now)
    now = 500.0
    assert not stopper.stop_all()
    now = 509.9
    assert not stopper.stop_all()
    now = 510.0
    assert stopper.stop_all()
    assert not stopper("a", {})


def test_an_experiments_clock_reaches_a_timeout_inside_a_combination() -> None:
    running = 0.0
    stopper = CombinedStopper(NoopStopper(), TimeoutStopper(5))
    stopper.use_clock(lambda: running)
    assert not stopper.stop_all()
    running = 5.0
    assert stopper.stop_all()


def test_a_trial_plateaus_when_its_window_is_full_flat_and_past_the_grace_period() -> None:
    assert verdicts(TrialPlateauStopper("loss", num_results=2, grace_period=4), [1.0] * 4) == [False] * 3 + [True]
    assert verdicts(TrialPlateauStopper("loss", num_results=3, grace_period=0), [5, 1, 1, 1]) == [False] * 3 + [True]


def test_the_deviation_of_a_plateau_is_the_populations() -> None:
    window = [1.0, 2.0, 3.0, 4.0]
    deviation = math.sqrt(1.25)
    assert not verdicts(TrialPlateauStopper("loss", std=deviation), window)[-1]
    assert verdicts(TrialPlateauStopper("loss", std=math.nextafter(deviation, 9)), window)[-1]


@pytest.mark.parametrize(("mode", "value", "stops"), [("min", 1.0, False), ("min", 0.0, True), ("max", -1.0, False)])
def test_a_plateau_worse_than_the_threshold_goes_on(mode: str, value: float, stops: bool) -> None:
    stopper = TrialPlateauStopper("loss", metric_threshold=0.0, mode=mode)
    assert verdicts(stopper, [value] * 4)[-1] is stops


@pytest.mark.parametrize("gap", [None, math.nan, math.inf, "text"])
def test_a_window_with_a_gap_in_it_is_no_plateau(gap: Any) -> None:
    stopper = TrialPlateauStopper("loss", num_results=3, grace_period=0)
    assert verdicts(stopper, [1.0, 1.0, gap, 1.0, 1.0, 1.0]) == [False] * 5 + [True]


def test_the_experiment_plateaus_when_the_best_of_all_trials_agree_for_long_enough() -> None:
    stopper = ExperimentPlateauStopper("loss", std=0.01, top=2, patience=2)
    results = [("a", 1.0), ("b", 0.5), ("a", 0.5), ("b", 9.0), ("a", math.nan)]
    assert [stopper(trial, {"loss": value}) for trial, value in results] == [False, False, False, True, True]
    assert stopper.stop_all()
    assert not stopper("b", {"loss": 0.1})  # a better value breaks the plateau
    assert not stopper.stop_all()


def test_the_best_are_the_highest_for_mode_max_and_names_may_be_nested() -> None:
    stopper = ExperimentPlateauStopper("eval/accuracy", top=2, mode="max")
    values = [0.1, 0.9, 0.2, 0.9]
    assert [stopper("a", {"eval": {"accuracy": value}}) for value in values] == [False, False, False, True]


def test_all_of_a_combination_see_all_results() -> None:
    count = MaximumIterationStopper(2)
    stopper = CombinedStopper(FunctionStopper(always), count)
    assert stopper("a", {})
    assert count("a", {})  # its second
    assert not stopper.stop_all()


def test_a_threshold_is_reached_from_below_and_may_be_nested() -> None:
    stopper = ThresholdStopper({"eval/accuracy": 0.9, "training_iteration": 10})
    assert not stopper("a", {"eval": {"accuracy": 0.89}, "training_iteration": 9})
    assert stopper("a", {"eval": {"accuracy": 0.9}, "training_iteration": 1})
    assert stopper("a", {"eval/accuracy": 0.0, "training_iteration": 10})
    assert not stopper("a", {"eval": {"accuracy": math.nan}, "training_iteration": 1})


def test_a_threshold_on_a_metric_that_is_not_reported_warns_once_and_stops_nothing() -> None:
    stopper = ThresholdStopper({"acuracy": 0.9})
    with pytest.warns(UserWarning, match=r"a number 'acuracy' run until .* it has accuracy, eval/loss\."):
        assert not stopper("a", {"accuracy": 1.0, "eval": {"loss": 0.1}})
    assert not stopper("b", {"accuracy": 1.0})


@pytest.mark.parametrize(
    ("stop", "kind"),
    [
        (None, NoopStopper),
        ({}, NoopStopper),
        ({"loss": 1}, ThresholdStopper),
        (always, FunctionStopper),
        (MaximumIterationStopper(1), MaximumIterationStopper),
        ([NoopStopper(), MaximumIterationStopper(1)], CombinedStopper),
    ],
)
def test_every_way_to_say_when_to_stop_becomes_a_stopper(stop: Any, kind: type[Stopper]) -> None:
    assert isinstance(as_stopper(stop), kind)


def test_a_time_budget_joins_what_else_stops() -> None:
    assert isinstance(as_stopper(None, time_budget_s=0), TimeoutStopper)
    both = as_stopper({"loss": 1}, time_budget_s=0)
    assert isinstance(both, CombinedStopper)
    assert both("a", {"loss": 1})
    assert both.stop_all()


class NoStopper:
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: as_stopper("loss"), TypeError, "RunConfig.stop='loss'"),
        (lambda: as_stopper(NoopStopper), TypeError, "pass a dict"),
        (lambda: as_stopper(NoStopper()), TypeError, "Subclass holdfast.tune.Stopper"),
        (lambda: as_stopper([always]), TypeError, "wrap a function in FunctionStopper"),
        (lambda: as_stopper({"a": {"b": "soon"}}), TypeError, "RunConfig.stop.'a/b'.='soon'"),
        (lambda: as_stopper({"a": "soon"}), TypeError, "RunConfig.stop.'a'.='soon'"),
        (lambda: MaximumIterationStopper(0), ValueError, "max_iter=0"),
        (lambda: TimeoutStopper("1h"), TypeError, "timeout='1h'"),
        (lambda: TimeoutStopper(-1), ValueError, "at least 0"),
        (lambda: TrialPlateauStopper("a", metric_threshold=0), ValueError, "mode=None"),
        (lambda: ExperimentPlateauStopper("a", top=1), ValueError, "top=1"),
        (lambda: ExperimentPlateauStopper("a", mode="best"), ValueError, "mode='best'"),
        (lambda: ExperimentPlateauStopper("a", std=0), ValueError, "std=0"),
        (lambda: FunctionStopper(3), TypeError, "function=3"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


FRESH: list[Callable[[], Stopper]] = [
    lambda: MaximumIterationStopper(3),
    lambda: TrialPlateauStopper("loss", std=0.5, num_results=2, grace_period=3),
    lambda: ExperimentPlateauStopper("loss", std=0.5, top=3, patience=2),
    lambda: as_stopper([MaximumIterationStopper(5), TrialPlateauStopper("loss", num_results=2)]),
]
RESULTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.1, 1.0, 2.0, math.nan])), max_size=20)


@pytest.mark.parametrize("fresh", FRESH)
@given(results=RESULTS)
def test_interrupted_anywhere_a_stopper_that_is_fed_again_goes_on_the_same(
    fresh: Callable[[], Stopper], results: list[tuple[str, float]]
) -> None:
    def feed(stopper: Stopper, part: list[tuple[str, float]]) -> list[tuple[bool, bool]]:
        return [(stopper(trial, {"loss": value}), stopper.stop_all()) for trial, value in part]

    whole = feed(fresh(), results)
    for cut in range(len(results) + 1):
        restored = fresh()
        feed(restored, results[:cut])
        assert feed(restored, results[cut:]) == whole[cut:]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_the_deviation_agrees_with_the_standard_library(values: list[float]) -> None:
    expected = statistics.pstdev(values)
    stopper = TrialPlateauStopper("loss", std=expected + 1e-6, num_results=len(values), grace_period=0)
    assert verdicts(stopper, values)[-1]
    if expected > 1e-5:
        stopper = TrialPlateauStopper("loss", std=expected - 1e-6, num_results=len(values), grace_period=0)
        assert not verdicts(stopper, values)[-1]
