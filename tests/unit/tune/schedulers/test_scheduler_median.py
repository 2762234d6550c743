"""The median stopping rule against cases computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune.schedulers import Decision, MedianStoppingRule
from holdfast.tune.schedulers.median_stopping_rule import Course
from holdfast.tune.schedulers.scoring import ScoreReading
from support.tune.toy_experiment import Toy, Trial, assert_replays, view_of


def rule(**options: Any) -> MedianStoppingRule:
    given = {"time_attr": "t", "metric": "m", "mode": "max", "grace_period": 2, "min_samples_required": 2}
    return MedianStoppingRule(**{**given, **options})


def report(scheduler: MedianStoppingRule, name: str, time: float, value: float, *waiting: Trial) -> Decision:
    trial = Trial(name, status="RUNNING")
    view = view_of(trial, *waiting)
    scheduler.on_trial_add(view, trial)
    return scheduler.on_trial_result(view, trial, {"t": time, "m": value})


def course(scheduler: MedianStoppingRule, name: str, *values: float) -> list[Decision]:
    return [report(scheduler, name, time, value) for time, value in enumerate(values, start=1)]


def test_a_case_by_hand() -> None:
    scheduler = rule()
    assert set(course(scheduler, "a", 9, 1, 2, 3)) == {"CONTINUE"}  # averages from t=2 on: 1, 1.5, 2
    assert set(course(scheduler, "b", 9, 3, 5, 7)) == {"CONTINUE"}  # 3, 4, 5
    # At t=3 the median of 1.5 and 4 is 2.75. The best so far counts, and the time before the grace period counts in it.
    assert course(scheduler, "c", 0, 0, 2.75) == ["CONTINUE", "STOP", "STOP"]
    assert course(scheduler, "d", 0, 2, 2.75) == ["CONTINUE"] * 3
    assert set(course(scheduler, "e", 6, 0, 0, 0)) == {"CONTINUE"}
    stop = report(scheduler, "f", 3, 2.0)  # b 4, a 1.5, d 2.375, e 0 (c only came to t=2): the median is 1.9375
    assert stop == "CONTINUE"
    stop = report(scheduler, "g", 3, 1.0)
    assert stop == "STOP"
    assert stop.reason == "at t=3 its best, m=1, is worse; the median of the others is m=2"


def test_less_is_better_with_min() -> None:
    scheduler = rule(mode="min")
    course(scheduler, "a", 0, 1, 2)
    course(scheduler, "b", 0, 1, 4)
    assert report(scheduler, "c", 3, 2.0) == "CONTINUE"  # the median of 1.5 and 2.5 is 2
    assert report(scheduler, "d", 3, 2.1) == "STOP"


def test_too_few_to_compare_with() -> None:
    scheduler = rule(min_samples_required=3)
    for name in "ab":
        course(scheduler, name, 5, 5, 5)
    assert report(scheduler, "c", 3, 0.0) == "CONTINUE"
    course(scheduler, "d", 5, 5, 5)
    assert report(scheduler, "e", 3, 0.0) == "STOP"


def test_with_too_few_to_compare_with_a_trial_gives_way_for_its_time_slice() -> None:
    scheduler = rule(min_time_slice=2)
    waiting = Trial("w", status="PENDING")
    assert report(scheduler, "a", 1, 1.0, waiting) == "CONTINUE"  # in the grace period
    assert report(scheduler, "a", 2, 1.0, waiting) == "PAUSE"
    assert report(scheduler, "a", 4, 1.0, waiting) == "CONTINUE"
    assert report(scheduler, "a", 5, 1.0) == "CONTINUE"  # nobody waits
    assert report(scheduler, "a", 6, 1.0, waiting) == "PAUSE"


def test_a_soft_stop_pauses_once_and_then_lets_go_on() -> None:
    scheduler = rule(hard_stop=False)
    for name in "ab":
        course(scheduler, name, 5, 5, 5)
    assert report(scheduler, "c", 3, 0.0) == "PAUSE"
    assert report(scheduler, "c", 4, 0.0) == "CONTINUE"


def test_what_is_not_finite_is_left_out_of_averages_and_is_no_best() -> None:
    scheduler = rule()
    course(scheduler, "a", 1, 1, 3)
    course(scheduler, "b", 1, math.nan, 4)  # its average at t=3 is 4
    course(scheduler, "c", math.inf, math.inf, math.nan)  # no average
    assert report(scheduler, "d", 3, 2.9) == "STOP"  # the median of 2 and 4 is 3
    assert report(scheduler, "e", 3, math.inf).reason.startswith("at t=3 it has no finite value")


def test_a_completed_trial_counts_with_its_last_result() -> None:
    scheduler = rule(min_samples_required=1)
    trial = Trial("a")
    scheduler.on_trial_complete(view_of(trial), trial, {"t": 5, "m": 3.0})
    scheduler.on_trial_complete(view_of(trial), trial, {"t": 5, "m": 9.0})  # known already
    assert report(scheduler, "b", 5, 2.0) == "STOP"
    assert report(scheduler, "c", 5, 3.0) == "CONTINUE"
    assert report(scheduler, "d", 6, 0.0) == "CONTINUE"  # nobody came this far


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 40))
def test_averages_are_those_of_the_definition(values: list[float], since: int, until: int) -> None:
    past = Course()
    for time, value in enumerate(values):
        past.add(ScoreReading(time, value), since)
    inside = [value for time, value in enumerate(values) if since <= time <= until]
    expected = sum(inside) / len(inside) if inside and until <= len(values) - 1 else None
    assert past.average(until) == (None if expected is None else pytest.approx(expected))
    assert past.best == max(values)


def test_an_experiment_replays() -> None:
    def make() -> MedianStoppingRule:
        return rule(time_attr="training_iteration", min_time_slice=1)

    configs = [{"q": number % 7} for number in range(20)]
    toy = Toy(make(), configs, lambda c, step: {"m": c["q"] + step}, slots=3).run()
    assert len(toy.ended) == 20
    assert all(toy.ended[f"t{number:03}"] == 10 for number in range(20) if number % 7 == 6)
    assert any(steps < 10 for steps in toy.ended.values())
    assert_replays(toy, make)


@pytest.mark.parametrize("options", [{"grace_period": -1}, {"min_samples_required": -1}, {"min_time_slice": -1}])
def test_mistakes(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        rule(**options)
