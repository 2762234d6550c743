"""ASHA's rungs, cutoffs and brackets against cases computed by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune.schedulers import ASHAScheduler, Decision
from holdfast.tune.schedulers.async_hyperband import Bracket, Rung
from support.tune.toy_experiment import Toy, Trial, assert_replays, view_of


def asha(**options: Any) -> ASHAScheduler:
    return ASHAScheduler(**{"metric": "score", "mode": "max", **options})


class Population:
    def __init__(self, scheduler: ASHAScheduler) -> None:
        self.scheduler = scheduler
        self.trials: dict[str, Trial] = {}

    def report(self, name: str, step: float, score: float) -> Decision:
        if name not in self.trials:
            self.trials[name] = Trial(name, status="RUNNING")
            self.scheduler.on_trial_add(view_of(*self.trials.values()), self.trials[name])
        result = {"training_iteration": step, "score": score}
        return self.scheduler.on_trial_result(view_of(*self.trials.values()), self.trials[name], result)

    def complete(self, name: str, step: float, score: float) -> None:
        result = {"training_iteration": step, "score": score}
        self.scheduler.on_trial_complete(view_of(*self.trials.values()), self.trials[name], result)


@pytest.mark.parametrize(
    ("grace_period", "max_t", "factor", "s", "milestones"),
    [
        (1, 100, 4, 0, [1, 4, 16, 64]),
        (1, 16, 2, 0, [1, 2, 4, 8, 16]),
        (1, 81, 3, 2, [9, 27, 81]),
        (5, 100, 3, 0, [5, 15, 45]),
        (1, 1000, 10, 0, [1, 10, 100, 1000]),
        (1, 4, 4, 2, []),
        (10, 10, 4, 0, [10]),
        (1, 10, 2.5, 0, [1, 2.5, 6.25]),
    ],
)
def test_rungs(grace_period: float, max_t: float, factor: float, s: int, milestones: list[float]) -> None:
    assert [rung.milestone for rung in Bracket(grace_period, max_t, factor, s).rungs] == milestones


def test_a_case_by_hand() -> None:
    """Halving: the cutoff is the median of those that were at the rung before."""
    population = Population(asha(max_t=16, reduction_factor=2))
    assert population.report("a", 1, 2.0) == "CONTINUE"  # nobody to compare with
    assert population.report("b", 1, 4.0) == "CONTINUE"  # cutoff 2
    stop = population.report("c", 1, 2.9)  # cutoff 3
    assert stop == "STOP"
    assert stop.reason == "score=2.9 is beyond score=3 at rung 1"
    assert population.report("d", 1, 2.9) == "CONTINUE"  # of 2, 2.9 and 4 the cutoff is 2.9, and equal is enough
    assert population.report("b", 2, 1.0) == "CONTINUE"  # the first one at rung 2
    assert population.report("a", 2, 0.9) == "STOP"
    assert population.report("b", 3, -9.0) == "CONTINUE"  # between rungs nothing is compared
    assert population.report("b", 4, -9.0) == "CONTINUE"


def test_the_cutoff_is_the_quantile_of_the_reduction_factor() -> None:
    rung = Rung(1, 4)
    assert rung.cutoff() is None
    for name, score in zip("dbca", (4.0, 2.0, 3.0, 1.0), strict=True):
        rung.record(name, score)
    assert rung.cutoff() == pytest.approx(3.25)
    rung = Rung(1, 2)
    rung.record("diverged", -math.inf)
    rung.record("good", 5.0)
    assert rung.cutoff() == -math.inf  # and not what lies between the two


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(1.1, 10))
def test_the_cutoff_is_numpys_percentile(scores: list[float], factor: float) -> None:
    rung = Rung(1, factor)
    for number, score in enumerate(scores):
        rung.record(str(number), score)
    assert rung.cutoff() == pytest.approx(np.percentile(scores, (1 - 1 / factor) * 100), rel=1e-6, abs=1e-6)


def test_less_is_better_with_min() -> None:
    population = Population(asha(mode="min", reduction_factor=2))
    assert population.report("a", 1, 2.0) == "CONTINUE"
    assert population.report("b", 1, 1.0) == "CONTINUE"
    stop = population.report("c", 1, 1.6)
    assert (stop, stop.reason) == ("STOP", "score=1.6 is beyond score=1.5 at rung 1")


def test_diverged_trials_count_as_the_worst() -> None:
    population = Population(asha(reduction_factor=2))
    assert population.report("a", 1, math.nan) == "CONTINUE"
    assert population.report("b", 1, -5.0) == "CONTINUE"
    assert population.report("c", 1, math.inf) == "CONTINUE"  # of the worst and -5 the cutoff is the worst
    assert population.report("d", 1, -5.0) == "CONTINUE"
    assert population.report("e", 1, -5.0) == "CONTINUE"
    assert population.report("f", 1, math.nan) == "STOP"


def test_a_trial_that_reports_seldom_is_compared_at_the_highest_rung_it_reached() -> None:
    population = Population(asha(max_t=64, reduction_factor=2))
    for step in (3, 6, 9):
        population.report("a", step, 1.0)
    rungs = population.scheduler._brackets[0].rungs
    assert [rung.milestone for rung in rungs if rung.scores] == [2, 4, 8]


def test_a_result_that_is_repeated_after_a_retry_counts_once() -> None:
    population = Population(asha(reduction_factor=2))
    for _ in range(2):
        assert population.report("a", 1, 1.0) == "CONTINUE"
    assert population.scheduler._brackets[0].rungs[0].scores == [1.0]


def test_max_t_stops_unless_the_last_are_to_go_on() -> None:
    stop = Population(asha(max_t=4)).report("a", 4, 1.0)
    assert (stop, stop.reason) == ("STOP", "reached max_t=4")
    population = Population(asha(max_t=4, stop_last_trials=False))
    assert population.report("a", 4, 1.0) == population.report("a", 99, 0.0) == "CONTINUE"
    assert population.report("b", 4, 0.5) == "STOP"  # worse than the one at the last rung


def test_the_end_of_a_trial_counts_at_its_rung_and_is_forgotten() -> None:
    population = Population(asha(max_t=4, reduction_factor=2))
    population.report("a", 1, 1.0)
    population.report("a", 4, 3.0)  # stops at max_t without comparison
    population.complete("a", 4, 3.0)
    rungs = population.scheduler._brackets[0].rungs
    assert [rung.scores for rung in rungs] == [[1.0], [], [3.0]]
    assert not any(rung.seen for rung in rungs)
    assert not population.scheduler._bracket_of


def test_a_trial_is_in_one_bracket_and_larger_brackets_are_likelier() -> None:
    scheduler = asha(max_t=81, reduction_factor=3, brackets=3, seed=1)
    trials = [Trial(f"t{number}") for number in range(3000)]
    for trial in trials:
        scheduler.on_trial_add(view_of(trial), trial)
    members = [sum(b is bracket for b in scheduler._bracket_of.values()) for bracket in scheduler._brackets]
    total = 1 + math.exp(-1) + math.exp(-2)
    for count, weight in zip(members, (1, math.exp(-1), math.exp(-2)), strict=True):
        assert count == pytest.approx(3000 * weight / total, rel=0.1)
    bracket = scheduler._bracket_of["t0"]
    scheduler.on_trial_add(view_of(trials[0]), trials[0])  # resumed
    assert scheduler._bracket_of["t0"] is bracket


def test_the_seed_of_the_experiment_is_used_if_there_is_no_other() -> None:
    def brackets(own: int | None, of_experiment: int | None) -> list[int]:
        scheduler = ASHAScheduler(max_t=81, reduction_factor=3, brackets=3, seed=own)
        scheduler.set_search_properties("score", "max", seed=of_experiment)
        for number in range(20):
            scheduler.on_trial_add(view_of(), Trial(str(number)))
        return [scheduler._brackets.index(bracket) for bracket in scheduler._bracket_of.values()]

    assert brackets(None, 5) == brackets(5, None) == brackets(5, 6) != brackets(6, None)
    assert brackets(None, None) == brackets(0, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_t": 0}, r"max_t=0\): must be greater than 0"),
        ({"grace_period": 0}, "grace_period=0"),
        ({"grace_period": 101}, r"grace_period=101, max_t=100\): must not be above max_t"),
        ({"reduction_factor": 1}, "reduction_factor=1"),
        ({"brackets": 0}, "brackets=0"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ASHAScheduler(**options)


def test_an_experiment_keeps_the_good_ones_and_replays() -> None:
    def make() -> ASHAScheduler:
        return asha(max_t=27, reduction_factor=3, brackets=2, seed=3)

    source = random.Random(1)
    qualities = [source.random() for _ in range(40)]
    configs = [{"quality": quality} for quality in qualities]
    toy = Toy(make(), configs, lambda c, step: {"score": c["quality"] * step}, slots=4, last_step=99, seed=2).run()
    assert len(toy.ended) == 40
    finished = [name for name, steps in toy.ended.items() if steps == 27]
    best = max(range(40), key=qualities.__getitem__)
    assert f"t{best:03}" in finished
    assert len(finished) < 15
    assert_replays(toy, make)
    again = Toy(make(), configs, lambda c, step: {"score": c["quality"] * step}, slots=4, last_step=99, seed=2).run()
    assert again.answers == toy.answers


def test_a_decision_is_quick_among_many() -> None:
    """By the number of comparisons, not by the clock: scores are kept sorted, and ended trials are let go."""
    scheduler = asha(max_t=4, reduction_factor=2)
    population = Population(scheduler)
    for number in range(300):
        population.report(str(number), 1, float(number))
        population.complete(str(number), 1, float(number))
        del population.trials[str(number)]
    rung = scheduler._brackets[0].rungs[0]
    assert rung.scores == sorted(rung.scores)
    assert (len(rung.scores), len(rung.seen), len(scheduler._bracket_of)) == (300, 0, 0)
