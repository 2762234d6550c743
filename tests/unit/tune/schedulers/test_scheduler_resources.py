"""Changing the resources of running trials: shares computed by hand, around other schedulers."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune.schedulers import ASHAScheduler, Decision, PopulationBasedTraining, Resize, ResourceChangingScheduler
from holdfast.tune.schedulers.allocation_view import AllocationView
from holdfast.tune.schedulers.resource_changing_scheduler import DistributeResources, DistributeResourcesToTopJob
from support.tune.toy_experiment import Toy, Trial, assert_replays, view_of


def asked(
    function: Any, trials: list[Trial], base: Any = ({"CPU": 1.0},), number: int = 0, **total: float
) -> list[dict[str, float]]:
    scheduler = ResourceChangingScheduler(ASHAScheduler(metric="score", mode="max"), function)
    scheduler.on_trial_add(view_of(Trial("first", resources=base)), Trial("first", resources=base))
    wanted = function(view_of(*trials, **total), trials[number], {"training_iteration": 1}, scheduler)
    found: list[dict[str, float]] = wanted.bundles
    return found


def having(*cpus: float, **more: Any) -> list[Trial]:
    return [Trial(f"t{number}", resources=({"CPU": cpu},), **more) for number, cpu in enumerate(cpus)]


@pytest.mark.parametrize(
    ("cpus", "total", "expected"),
    [
        ([1], 8, 8),  # alone it gets all
        ([1, 1], 8, 4),
        ([1, 1, 1], 8, 3),  # five units for three: two, as far as they go
        ([1, 4, 3], 8, 1),  # nothing is free
        ([8, 1], 8, 4),  # another one came: it gives back down to its share
        ([5, 1, 1, 1], 8, 2),
        ([1, 1, 1, 1], 4, 1),
        ([3, 1], 2, 1),  # nodes were lost: never below what it started with
    ],
)
def test_even_shares_by_hand(cpus: list[float], total: float, expected: float) -> None:
    assert asked(DistributeResources(), having(*cpus), CPU=total) == [{"CPU": expected}]


def test_trials_with_gpus_get_gpus() -> None:
    trials = [Trial("a", resources=({"CPU": 2.0, "GPU": 1.0},))]
    assert asked(DistributeResources(), trials, trials[0].resources, CPU=8, GPU=4) == [{"CPU": 2, "GPU": 4}]


@pytest.mark.parametrize(
    ("own", "total", "expected"),
    [(0.5, 0.9, 0.5), (0.5, 1, 1), (0.5, 1.5, 1), (0.5, 2, 2), (0.4, 0.8, 0.8), (0.4, 4, 4)],
)
def test_trials_with_a_fraction_of_a_gpu_get_such_fractions_or_whole_gpus(
    own: float, total: float, expected: float
) -> None:
    base = ({"CPU": 1.0, "GPU": own},)
    found = asked(DistributeResources(), [Trial("a", resources=base)], base, CPU=8, GPU=total)
    assert found == [{"CPU": 1, "GPU": expected}]
    trials = [Trial("a", resources=tuple(found))]
    assert asked(DistributeResources(), trials, base, CPU=8, GPU=total) == found, "it does not change again"
    ones = DistributeResources(increase_by={"GPU": 1})
    assert asked(ones, [Trial("a", resources=base)], base, CPU=8, GPU=2) == [{"CPU": 1, "GPU": 1}]


def test_a_trial_that_an_allocation_function_sees_is_equal_in_each_call_and_can_be_copied() -> None:
    view = AllocationView(view_of(*having(1, 2)))
    first, second = view.get_trials()
    assert first == view.get_trial("t0") != second
    assert {first: "known"}[view.get_live_trials()[0]] == "known"
    for copied in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert copied == first
        assert copied.resources == first.resources


def test_units_of_several_resources_with_a_limit_and_a_reserve() -> None:
    function = DistributeResources(increase_by={"CPU": 2, "GPU": 1})
    trials = [Trial("a", resources=({"CPU": 1.0, "GPU": 1.0},))]
    assert asked(function, trials, trials[0].resources, CPU=8, GPU=9) == [{"CPU": 7, "GPU": 4}]
    limited = DistributeResources(increase_by={"CPU": 2, "GPU": 1}, increase_by_times=2)
    assert asked(limited, trials, trials[0].resources, CPU=8, GPU=9) == [{"CPU": 5, "GPU": 3}]
    reserved = DistributeResources(reserve_resources={"CPU": 3})
    assert asked(reserved, having(1), CPU=8) == [{"CPU": 5}]


def test_whole_bundles_can_be_added() -> None:
    base = ({"CPU": 1.0}, {"CPU": 2.0})
    trials = [Trial("a", resources=base)]
    assert asked(DistributeResources(add_bundles=True), trials, base, CPU=8) == [*base, {"CPU": 2}, {"CPU": 2}]
    with pytest.raises(ValueError, match="trials have 2 bundles and must have one; pass add_bundles=True"):
        asked(DistributeResources(), trials, base, CPU=8)


def test_all_for_the_best() -> None:
    function = DistributeResourcesToTopJob(metric="score", mode="max")
    trials = having(1, 1, 1)
    for trial, score in zip(trials, (1.0, 3.0, float("nan")), strict=True):
        trial.last_result = {"score": score}
    assert asked(function, trials, number=0, CPU=8) == [{"CPU": 1}]
    assert asked(function, trials, number=1, CPU=8) == [{"CPU": 6}]
    assert asked(function, trials, number=2, CPU=8) == [{"CPU": 1}]
    limited = DistributeResourcesToTopJob(increase_by={"CPU": 1}, increase_by_times=2)
    trials[1].resources = ({"CPU": 3.0},)
    assert asked(limited, trials, number=1, CPU=8) == [{"CPU": 3}]
    assert asked(limited, trials, number=0, CPU=8) == [{"CPU": 3}]  # the next best that may have more
    with pytest.raises(ValueError, match="needs a metric and a mode"):
        DistributeResourcesToTopJob()(view_of(*trials), trials[0], {}, ResourceChangingScheduler())
    with pytest.raises(ValueError, match=r"mode='x'\)"):
        DistributeResourcesToTopJob(mode="x")


@pytest.mark.parametrize("increase_by", [{"CPU": 0}, {"CPU": -1, "GPU": 1}])
def test_mistakes(increase_by: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"increase_by=.*pass amounts above 0"):
        DistributeResources(increase_by=increase_by)


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(1, 30), st.sampled_from([1, 2, 3]))
def test_shares_are_never_below_the_base_and_never_more_than_there_is(cpus: list[int], total: int, unit: int) -> None:
    for number in range(len(cpus)):
        (bundle,) = asked(DistributeResources(increase_by={"CPU": unit}), having(*cpus), number=number, CPU=total)
        assert bundle["CPU"] >= 1
        others = sum(cpus) - cpus[number]
        assert bundle["CPU"] == 1 or others + bundle["CPU"] <= total


@pytest.mark.parametrize(
    "answer",
    [[{"CPU": 2}], ({"CPU": 2, "GPU": 0},), {"CPU": 2}, SimpleNamespace(bundles=[{"CPU": 2.0}])],
)
def test_a_function_of_the_user_may_answer_in_several_ways(answer: Any) -> None:
    scheduler = ResourceChangingScheduler(resources_allocation_function=lambda *_: answer)
    (trial,) = having(1, status="RUNNING")
    scheduler.on_trial_add(view_of(trial), trial)
    decision = scheduler.on_trial_result(view_of(trial), trial, {})
    assert (decision, decision.requests) == ("PAUSE", (Resize("t0", ({"CPU": 2.0},)),))
    assert decision.reason == "starts again with 2 CPU"
    trial.resources = ({"CPU": 2.0, "GPU": 0.0},)
    assert scheduler.on_trial_result(view_of(trial), trial, {}) == "CONTINUE"


def test_without_a_function_nothing_changes_and_it_says_so() -> None:
    with pytest.warns(UserWarning, match="no trial's resources will ever change"):
        scheduler = ResourceChangingScheduler(resources_allocation_function=None)
    (trial,) = having(1)
    assert scheduler.on_trial_result(view_of(trial, CPU=9.0), trial, {}) == "CONTINUE"


def test_the_other_scheduler_decides_first() -> None:
    scheduler = ResourceChangingScheduler(ASHAScheduler(metric="score", mode="max", max_t=3))
    (trial,) = having(1)
    scheduler.on_trial_add(view_of(trial), trial)
    stop = scheduler.on_trial_result(view_of(trial, CPU=9.0), trial, {"training_iteration": 3, "score": 1.0})
    assert (stop, stop.requests) == ("STOP", ())
    assert scheduler.on_trial_result(view_of(trial), trial, {"training_iteration": 1}) == "ERROR"
    assert (scheduler.metric, scheduler.mode) == ("score", "max")
    assert scheduler.debug_string().startswith("ResourceChangingScheduler around AsyncHyperBandScheduler: 1 stopped")


def test_what_the_other_scheduler_asks_for_is_kept() -> None:
    class Asks(ASHAScheduler):
        def on_trial_result(self, *_: Any) -> Decision:
            return Decision("CONTINUE", "", [Resize("other", ({"CPU": 1.0},))])

    scheduler = ResourceChangingScheduler(Asks(), lambda *_: {"CPU": 2})
    (trial,) = having(1)
    assert [r.trial_id for r in scheduler.on_trial_result(view_of(trial), trial, {}).requests] == ["other", "t0"]
    pbt = PopulationBasedTraining(hyperparam_mutations={"lr": [1]})
    assert not ResourceChangingScheduler(pbt).accepts_searcher
    assert ResourceChangingScheduler(pbt).needs_population


def test_an_experiment_uses_what_gets_free_and_replays() -> None:
    def make() -> ResourceChangingScheduler:
        return ResourceChangingScheduler(ASHAScheduler(metric="score", mode="max", max_t=9, reduction_factor=3))

    configs = [{"q": float(number)} for number in (5, 1, 4, 2)]
    toy = Toy(make(), configs, lambda c, step: {"score": c["q"] * step}, slots=4, last_step=99).run()
    assert toy.ended["t000"] == 9
    assert toy.view.trials["t000"].resources[0]["CPU"] > 1
    assert_replays(toy, make)
