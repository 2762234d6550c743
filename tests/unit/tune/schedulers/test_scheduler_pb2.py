"""Population-based bandits: what the model sees, where it points, and that all of it replays."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import numpy as np
import pytest

from holdfast.tune.schedulers import PB2, Decision, SetConfig
from holdfast.tune.schedulers import gaussian_process as gp
from holdfast.tune.schedulers.pb2 import Observation
from support.tune.toy_experiment import Toy, Trial, View, assert_replays, view_of


def pb2(**options: Any) -> PB2:
    given = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 2,
        "hyperparam_bounds": {"lr": [0.0, 10.0]},
    }
    return PB2(**{**given, **options})


class Population:
    def __init__(self, scheduler: PB2, *configs: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.view = View({})
        for number, config in enumerate(configs):
            trial = Trial(f"t{number}", config, status="RUNNING")
            self.view.trials[trial.trial_id] = trial
            scheduler.on_trial_add(self.view, trial)

    def report(self, name: str, step: int, score: float) -> Decision:
        trial = self.view.trials[name]
        trial.last_result = {"training_iteration": step, "score": score}
        trial.checkpoint = step
        return self.scheduler.on_trial_result(self.view, trial, trial.last_result)


def test_what_the_model_sees_by_hand() -> None:
    population = Population(pb2(), {"lr": 5.0}, {"lr": 2.0})
    population.report("t0", 2, 1.0)
    population.report("t0", 4, 5.0)  # gained 4 in 2 units of time from score 1 at the end of the first interval
    assert list(population.scheduler._observations) == [Observation(1.0, 1.0, (0.5,), 2.0)]
    exploit = population.report("t1", 2, 0.0).requests[0]
    population.view.trials["t1"].config = exploit.config
    assert 0 <= exploit.config["lr"] <= 10
    assert exploit.operations == {"lr": "model"}
    assert exploit.donor_config == {"lr": 5.0}
    assert list(population.scheduler._under_way) == ["t1"]
    population.report("t1", 6, 9.0)  # it started from score 5 at 4, where it took over
    assert population.scheduler._observations[-1] == Observation(2.0, 5.0, (exploit.config["lr"] / 10,), 2.0)
    assert population.scheduler._under_way == {}


def test_diverged_or_repeated_results_are_not_for_the_model() -> None:
    population = Population(pb2(), {"lr": 5.0})
    population.report("t0", 2, 1.0)
    population.report("t0", 4, math.nan)
    population.report("t0", 6, 1.0)
    assert not population.scheduler._observations


def test_the_end_of_a_trial_is_the_end_of_what_is_kept_of_it() -> None:
    population = Population(pb2(), {"lr": 5.0}, {"lr": 1.0})
    population.report("t0", 2, 1.0)
    population.report("t1", 2, 0.0)
    for trial in population.view.get_trials():
        population.scheduler.on_trial_complete(population.view, trial, {})
    assert not population.scheduler._since
    assert not population.scheduler._under_way
    assert not population.scheduler._standings


def test_whole_numbers_stay_whole_and_nested_ones_nested() -> None:
    scheduler = pb2(hyperparam_bounds={"net": {"depth": [1, 9]}, "lr": (0.5, 1.0)})
    population = Population(scheduler, {"net": {"depth": 4, "k": 1}, "lr": 0.75}, {"net": {"depth": 2}, "lr": 0.5})
    population.report("t0", 2, 1.0)
    exploit = population.report("t1", 2, 0.0).requests[0]
    assert type(exploit.config["net"]["depth"]) is int
    assert exploit.config["net"]["k"] == 1
    assert exploit.operations == {"net": {"depth": "model"}, "lr": "model"}


def test_a_first_configuration_is_drawn_within_the_bounds() -> None:
    trial = Trial("a", {"other": 1})
    (request,) = pb2(hyperparam_bounds={"a": {"b": [3, 4]}}).on_trial_add(view_of(trial), trial) or ()
    assert isinstance(request, SetConfig)
    assert 3 <= request.config["a"]["b"] <= 4


def test_a_function_of_the_user_has_the_last_word() -> None:
    population = Population(pb2(custom_explore_fn=lambda config: {**config, "lr": -1}), {"lr": 5.0}, {"lr": 1.0})
    population.report("t0", 2, 1.0)
    assert population.report("t1", 2, 0.0).requests[0].config == {"lr": -1}


def observations(count: int, best: float, dimensions: int = 1, seed: int = 0) -> list[Observation]:
    source = random.Random(seed)
    points = [tuple(source.random() for _ in range(dimensions)) for _ in range(count)]
    return [Observation(5.0, 1.0, point, -sum((p - best) ** 2 for p in point)) for point in points]


@pytest.mark.parametrize(("best", "dimensions"), [(0.2, 1), (0.5, 1), (0.9, 1), (0.5, 2)])
def test_the_model_points_to_where_most_was_gained(best: float, dimensions: int) -> None:
    found = gp.suggest(observations(40, best, dimensions), [], 5.0, 1.0, dimensions, seed=1)
    assert found == pytest.approx([best] * dimensions, abs=0.15)


def test_a_batch_spreads_out() -> None:
    """With one observation in the middle the first goes to one end, and the next to the other."""
    known = [Observation(5.0, 1.0, (0.5,), 0.0)]
    first = gp.suggest(known, [], 5.0, 1.0, 1, seed=1)
    second = gp.suggest(known, [first], 5.0, 1.0, 1, seed=1)
    assert sorted([*first, *second]) == pytest.approx([0.0, 1.0], abs=0.1)


def test_the_same_seed_gives_the_same_point_and_no_data_a_random_one() -> None:
    known = observations(10, 0.3)
    assert gp.suggest(known, [], 5.0, 1.0, 1, seed=1) == gp.suggest(known, [], 5.0, 1.0, 1, seed=1)
    assert gp.suggest([], [], 0.0, 0.0, 3, seed=1) == gp.suggest([], [], 0.0, 0.0, 3, seed=1)
    assert gp.suggest([], [], 0.0, 0.0, 3, seed=1) != gp.suggest([], [], 0.0, 0.0, 3, seed=2)


def test_observations_that_are_all_the_same_do_no_harm() -> None:
    (found,) = gp.suggest([Observation(1.0, 1.0, (0.5,), 0.0)] * 20, [(0.5,)] * 5, 1.0, 1.0, 1, seed=0)
    assert 0 <= found <= 1


def test_the_posterior_is_that_of_the_textbook() -> None:
    """Against the formula for one observation: mean k y / (v + noise), variance v - k^2 / (v + noise)."""
    hyper = np.log([2.0, 0.5, 0.1, 0.3])
    known, at = np.array([[1.0, 0.2, 0.4]]), np.array([[3.0, 0.1, 0.8]])
    k = 2.0 * math.exp(-(0.1**2 + 0.4**2) / 0.5) * 0.9 ** (2.0 / 2.0)
    process = gp._Process(known, np.array([1.5]), np.zeros((0, 3)), hyper)
    expected = k * 1.5 / 2.3 + math.sqrt(0.2) * math.sqrt(2.0 - k * k / 2.3)
    assert process.upper_bound(at)[0] == pytest.approx(expected)
    likelihood = -0.5 * 1.5**2 / 2.3 - 0.5 * math.log(2.3)
    assert gp._log_likelihood(known, np.array([1.5]), hyper) == pytest.approx(likelihood)


@pytest.mark.parametrize("synch", [False, True])
def test_an_experiment_finds_the_best_rate_and_replays(synch: bool) -> None:
    """The score grows by 1 - |lr - 7| / 10 a step, as far as the checkpoint that is taken over has it."""

    def make() -> PB2:
        return pb2(synch=synch, seed=4)

    def objective(config: Any, step: int) -> dict[str, float]:
        return {"score": step * (1 - abs(config["lr"] - 7) / 10)}

    toy = Toy(make(), [{"lr": float(lr)} for lr in (0, 1, 2, 3)], objective, slots=4, last_step=24, seed=1).run()
    assert len(toy.exploits) >= 3
    assert min(abs(trial.config["lr"] - 7) for trial in toy.view.get_trials()) < 1.5
    assert_replays(toy, make)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (None, r"PB2\(hyperparam_bounds\): pass the bounds"),
        ({"lr": [1]}, r"hyperparam_bounds\['lr'\]=\[1\]: pass \[lowest, highest\]"),
        ({"a": {"lr": "x"}}, r"hyperparam_bounds\['a'\]\['lr'\]='x'"),
        ({"lr": [2, 1]}, "the first must be below the second"),
        ({"lr": [0, math.inf]}, "the first must be below the second"),
    ],
)
def test_mistakes(bounds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pb2(hyperparam_bounds=bounds)


def test_without_numpy_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "numpy" else sys.modules[name].__spec__
    )
    with pytest.raises(ImportError, match="PB2 needs numpy: pip install numpy"):
        pb2()
