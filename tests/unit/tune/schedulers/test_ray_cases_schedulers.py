"""What Ray's own tests expect of schedulers that they call themselves: decisions by hand.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.schedulers import (
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from holdfast.tune.schedulers.resource_changing_scheduler import DistributeResources, DistributeResourcesToTopJob
from support.tune.toy_experiment import Trial, View, view_of

CONTINUE, PAUSE, STOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP


class Scene:
    """Trials that report, and what the scheduler says."""

    def __init__(self, scheduler: Any, metric: str = "reward") -> None:
        self.scheduler, self.metric = scheduler, metric
        self.view = view_of()

    def add(self, name: str, **more: Any) -> Trial:
        trial = self.view.trials[name] = Trial(name, status="RUNNING", **more)
        self.scheduler.on_trial_add(self.view, trial)
        return trial

    def report(self, name: str, step: float, reward: float, **more: Any) -> Any:
        trial = self.view.trials[name]
        trial.last_result = {"training_iteration": step, "time_total_s": step, self.metric: reward, **more}
        return self.scheduler.on_trial_result(self.view, trial, trial.last_result)

    def complete(self, name: str, step: float, reward: float) -> None:
        trial = self.view.trials[name]
        trial.status = "TERMINATED"
        trial.last_result = {"training_iteration": step, "time_total_s": step, self.metric: reward}
        self.scheduler.on_trial_complete(self.view, trial, trial.last_result)


def two_trials(scheduler: Any, sign: int = 1, metric: str = "reward") -> Scene:
    """The first one has 0 to 900, the second one 450 all the time."""
    scene = Scene(scheduler, metric)
    scene.add("1")
    scene.add("2")
    assert {scene.report("1", step, sign * step * 100) for step in range(10)} == {CONTINUE}
    assert {scene.report("2", step, sign * 450) for step in range(5)} == {CONTINUE}
    return scene


def median(**settings: Any) -> MedianStoppingRule:
    return MedianStoppingRule(
        **{"metric": "reward", "mode": "max", "grace_period": 0, "min_samples_required": 1, **settings}
    )


def test_the_median_of_others() -> None:
    scene = two_trials(median())
    scene.complete("1", 10, 1000)
    assert [scene.report("2", *at) for at in ((5, 450), (6, 0), (10, 450))] == [CONTINUE, CONTINUE, STOP]
    scene = two_trials(median())
    assert scene.report("2", 100, 0) == CONTINUE
    scene.complete("1", 101, 1000)
    assert scene.report("2", 101, 0) == STOP


def test_the_median_waits_for_time_and_for_samples() -> None:
    scene = two_trials(median(grace_period=2.5))
    scene.complete("1", 10, 1000)
    scene.complete("2", 10, 1000)
    scene.add("3")
    assert [scene.report("3", step, 10) for step in (1, 2, 3)] == [CONTINUE, CONTINUE, STOP]
    scene = two_trials(median(min_samples_required=2))
    scene.complete("1", 10, 1000)
    scene.add("3")
    assert scene.report("3", 5, 10) == CONTINUE
    scene.complete("2", 5, 1000)
    assert scene.report("3", 5, 10) == STOP


@pytest.mark.parametrize(("hard", "expected"), [(True, STOP), (False, PAUSE)])
def test_the_median_stops_or_pauses(hard: bool, expected: Any) -> None:
    scene = two_trials(median(hard_stop=hard))
    scene.complete("1", 10, 1000)
    scene.complete("2", 10, 1000)
    scene.add("3")
    assert [scene.report("3", step, 260) for step in (1, 2)] == [CONTINUE, expected]


@pytest.mark.parametrize(("metric", "mode", "sign"), [("neg_mean_loss", "max", 1), ("mean_loss", "min", -1)])
@pytest.mark.parametrize("kind", ["median", "asha"])
def test_other_metrics(metric: str, mode: str, sign: int, kind: str) -> None:
    settings: dict[str, Any] = {"metric": metric, "mode": mode, "time_attr": "training_iteration"}
    asha = AsyncHyperBandScheduler(grace_period=1, brackets=1, **settings)
    scene = two_trials(median(**settings) if kind == "median" else asha, sign, metric)
    scene.complete("1", 10, sign * 1000)
    assert [scene.report("2", *at) for at in ((5, sign * 450), (6, 0))] == [CONTINUE, CONTINUE]


def asha(**settings: Any) -> AsyncHyperBandScheduler:
    return AsyncHyperBandScheduler(**{"metric": "reward", "mode": "max", "brackets": 1, **settings})


def test_asha_ends_at_its_limit() -> None:
    scene = two_trials(asha(max_t=10))
    scene.add("3")
    scene.complete("3", 10, 1000)
    assert scene.report("2", 101, 0) == STOP
    scene = Scene(asha(max_t=10, brackets=10))
    for number in range(10):
        scene.add(str(number))
    assert {scene.report(str(number), 10, -2) for number in range(10)} == {STOP}


def test_asha_waits_and_takes_the_best_part() -> None:
    scene = two_trials(asha(grace_period=2.5, reduction_factor=3))
    scene.complete("1", 10, 1000)
    scene.complete("2", 10, 1000)
    scene.add("3")
    assert [scene.report("3", step, 10) for step in (1, 2, 3)] == [CONTINUE, CONTINUE, STOP]
    scene = two_trials(asha(grace_period=1, max_t=10, reduction_factor=2))
    scene.complete("1", 10, 1000)
    scene.complete("2", 10, 1000)
    scene.add("3")
    assert scene.report("3", 1, 260) == STOP


def test_asha_saved_and_restored(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"grace_period": 1, "max_t": 10, "reduction_factor": 2}
    scene = Scene(asha(**settings))
    for number in range(10):
        scene.add(str(number))
    assert STOP not in [scene.report(str(number), 1, 10) for number in range(5)]
    assert scene.report("5", 1, 5) == STOP
    scene.scheduler.save(str(tmp_path / "saved"))
    scene.scheduler = asha(**settings)
    scene.scheduler.restore(str(tmp_path / "saved"))
    assert scene.report("6", 1, 4) == STOP
    scene.add("new")
    assert scene.report("new", 1, 2) == STOP


def test_asha_may_let_the_last_ones_run() -> None:
    scene = Scene(asha(grace_period=1, max_t=3, reduction_factor=2, stop_last_trials=False))
    for name in "0123":
        scene.add(name)
    assert [scene.report(name, 2, reward) for name, reward in zip("0123", (10, 8, 6, 4), strict=True)] == [
        CONTINUE,
        STOP,
        STOP,
        STOP,
    ]
    assert [scene.report("0", step, reward) for step, reward in ((4, 10), (8, 10), (14, 1))] == [CONTINUE] * 3


POPULATION = {"hyperparam_mutations": {"ignored": [1]}}
KINDS: list[Any] = [
    MedianStoppingRule(metric="reward", mode="max"),
    HyperBandScheduler(metric="reward", mode="max"),
    asha(max_t=10),
    PopulationBasedTraining(metric="reward", mode="max", **POPULATION),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("scheduler", KINDS, ids=lambda each: type(each).__name__)
def test_scores_that_are_no_numbers(scheduler: Any) -> None:
    scene = Scene(scheduler)
    for name, value in (("1", math.nan), ("2", math.inf), ("3", -math.inf)):
        scene.add(name)
        for step in range(10):
            scene.report(name, step, value)
        scene.complete(name, 10, value)


# Populations


def population(mutations: dict[str, Any] | None = None, **settings: Any) -> Scene:
    """Five trials with scores from 0 to 200 at step 10."""
    chosen = mutations or {"float_factor": lambda: 100.0, "int_factor": lambda: 10, "id_factor": [100]}
    scheduler = PopulationBasedTraining(
        **{
            "time_attr": "training_iteration",
            "metric": "reward",
            "mode": "max",
            "perturbation_interval": 10,
            "resample_probability": 0.0,
            "quantile_fraction": 0.25,
            "hyperparam_mutations": chosen,
            **settings,
        }
    )
    scene = Scene(scheduler)
    for number in range(5):
        config = {"float_factor": 2.0, "const_factor": 3, "int_factor": 10, "id_factor": number, "nest": {"f": 3.0}}
        scene.add(str(number), config=config, checkpoint=1)
    for number in range(5):
        assert scene.report(str(number), 10, 50 * number) == CONTINUE
    return scene


def exploit_of(decision: Any) -> Any:
    (found,) = (request for request in decision.requests if type(request).__name__ == "Exploit")
    return found


def test_a_bad_trial_copies_a_good_one_and_explores() -> None:
    scene = population()
    assert not scene.report("0", 15, -100).requests, "its interval is not over"
    exploit = exploit_of(scene.report("0", 20, -100))
    assert exploit.donor_id in ("3", "4")
    assert exploit.config["id_factor"] == 100
    assert exploit.config["float_factor"] in (2.4, 1.6)
    assert exploit.config["int_factor"] in (8, 12)
    assert type(exploit.config["int_factor"]) is int
    assert exploit.config["const_factor"] == 3


RESAMPLED: list[dict[str, Any]] = [
    {"float_factor": lambda: 100.0, "int_factor": lambda: 10, "id_factor": [100]},
    {"float_factor": lambda: 100.0, "int_factor": lambda: 10, "id_factor": tune.choice([100])},
    {"float_factor": lambda: 100.0, "nest": {"f": lambda: 101.0}},
]


@pytest.mark.parametrize("mutations", RESAMPLED)
def test_resampled_values(mutations: dict[str, Any]) -> None:
    config = exploit_of(population(mutations, resample_probability=1.0).report("0", 20, -100)).config
    assert config["float_factor"] == 100.0
    assert config["int_factor"] == 10
    assert config["id_factor"] == 100 if "id_factor" in mutations else config["nest"] == {"f": 101.0}


def test_what_a_user_makes_of_an_explored_config() -> None:
    def explore(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "id_factor": 42, "float_factor": 43}

    config = exploit_of(population(custom_explore_fn=explore).report("0", 20, -100)).config
    assert (config["id_factor"], config["float_factor"]) == (42, 43)


STEPS: list[tuple[dict[str, Any], dict[str, Any], set[Any]]] = [
    ({"v": 4}, {"v": [3, 4, 8, 10]}, {3, 8}),
    ({"v": 3}, {"v": [3, 4, 8, 10]}, {3, 4}),
    ({"v": 10}, {"v": [3, 4, 8, 10]}, {8, 10}),
    ({"v": 7}, {"v": [3, 4, 8, 10]}, {3, 4, 8, 10}),
    ({"v": 4}, {"v": (3, 4, 8, 10)}, {3, 8}),
    ({"v": 100}, {"v": lambda: 10}, {80, 120}),
    ({"v": 100.0}, {"v": lambda: 10}, {80.0, 120.0}),
]


@pytest.mark.parametrize(("config", "mutations", "expected"), STEPS)
def test_steps_of_exploration(config: dict[str, Any], mutations: dict[str, Any], expected: set[Any]) -> None:
    seen = set()
    for seed in range(60):
        scheduler = PopulationBasedTraining(
            time_attr="training_iteration",
            metric="reward",
            mode="max",
            perturbation_interval=1,
            resample_probability=0.0,
            hyperparam_mutations=mutations,
            seed=seed,
        )
        scene = Scene(scheduler)
        for name in "ab":
            scene.add(name, config=dict(config), checkpoint=1)
        scene.report("a", 1, 10)
        seen.add(exploit_of(scene.report("b", 1, 0)).config["v"])
    assert seen == expected


@pytest.mark.parametrize("wrong", [{3, 4}, "invalid", tune.sample_from(lambda: 100.0)])
def test_mutations_that_are_none(wrong: Any) -> None:
    with pytest.raises(ValueError):
        population({"float_factor": wrong})


def test_results_without_what_a_population_needs() -> None:
    scene = population()
    trial = scene.view.trials["0"]
    for result in ({"reward": 4}, {"random_metric": 10, "training_iteration": 20}):
        assert scene.scheduler.on_trial_result(scene.view, trial, result) == "ERROR", "Ray ends the experiment"
        lenient = population(require_attrs=False)
        decision = lenient.scheduler.on_trial_result(lenient.view, trial, result)
        assert decision == CONTINUE
        assert "reward" in decision.reason or "training_iteration" in decision.reason


# Resources


def shared(function: Any, base: list[dict[str, float]], scores: bool = False) -> tuple[ResourceChangingScheduler, View]:
    scheduler = ResourceChangingScheduler(resources_allocation_function=function)
    view = view_of(CPU=8.0, GPU=8.0)
    for number in range(4):
        last = {"metric": 1 - 0.1 * number, "training_iteration": 3} if scores else {}
        trial = Trial(str(number + 1), status="RUNNING", resources=tuple(base), last_result=last)
        view.trials[trial.trial_id] = trial
        scheduler.on_trial_add(view, trial)
    return scheduler, view


def asked(scheduler: ResourceChangingScheduler, view: View, name: str, metric: float = 1) -> Any:
    trial = view.trials[name]
    trial.last_result = {"metric": metric, "training_iteration": 4}
    decision = scheduler.on_trial_result(view, trial, trial.last_result)
    if decision == CONTINUE:
        return None
    assert decision == PAUSE
    (resize,) = decision.requests
    trial.resources = resize.resources
    return list(resize.resources)


def ends(view: View, name: str) -> None:
    view.trials[name].status = "TERMINATED"


@pytest.mark.parametrize("adds", [False, True])
def test_even_shares_as_trials_end(adds: bool) -> None:
    def cpus(amount: int) -> list[dict[str, float]]:
        return [{"CPU": 1.0}] * amount if adds else [{"CPU": float(amount)}]

    scheduler, view = shared(DistributeResources(add_bundles=adds), [{"CPU": 1.0}])
    assert [asked(scheduler, view, name) for name in "12"] == [cpus(2), cpus(2)]
    for name, expected in (("4", 3), ("3", 4), ("2", 8)):
        ends(view, name)
        assert asked(scheduler, view, "1") == cpus(expected)


@pytest.mark.parametrize("adds", [False, True])
def test_even_shares_in_units(adds: bool) -> None:
    def units(amount: int) -> list[dict[str, float]]:
        return [{"CPU": 2.0, "GPU": 2.0}] * amount if adds else [{"CPU": 2.0 * amount, "GPU": 2.0 * amount}]

    unit = {"CPU": 2, "GPU": 2}
    scheduler, view = shared(DistributeResources(add_bundles=adds, increase_by=unit), [{"CPU": 2.0, "GPU": 2.0}])
    assert asked(scheduler, view, "1") is None
    for ended, name, amount in (("4", "1", 2), ("3", "2", 2), ("2", "1", 4)):
        ends(view, ended)
        assert asked(scheduler, view, name) == units(amount)


def test_a_limit_of_units_and_what_is_given_back() -> None:
    base = [{"CPU": 1.0, "GPU": 2.0}]
    scheduler, view = shared(DistributeResources(increase_by={"GPU": 2}, increase_by_times=2), base)
    assert asked(scheduler, view, "1") is None
    for ended, name, gpus in (("4", "1", 4.0), ("3", "2", 4.0), ("2", "1", 6.0)):
        ends(view, ended)
        assert asked(scheduler, view, name) == [{"CPU": 1.0, "GPU": gpus}]
    scheduler, view = shared(DistributeResources(increase_by={"GPU": 2}), base)
    view.trials["1"].resources = ({"CPU": 1.0, "GPU": 4.0},)
    view.trials["4"].status = "PENDING"
    assert asked(scheduler, view, "1") == base


def test_all_for_the_best_trial() -> None:
    function = DistributeResourcesToTopJob(metric="metric", mode="max")
    scheduler, view = shared(function, [{"CPU": 1.0}], scores=True)
    assert asked(scheduler, view, "2", 0.9) is None
    assert asked(scheduler, view, "1") == [{"CPU": 5.0}]
    assert asked(scheduler, view, "2", 1.1) is None, "nothing is free"
    ends(view, "4")
    assert asked(scheduler, view, "2", 1.1) == [{"CPU": 2.0}]
    ends(view, "3")
    assert asked(scheduler, view, "1", 1.2) == [{"CPU": 6.0}]
    ends(view, "2")
    assert asked(scheduler, view, "1") == [{"CPU": 8.0}]
