"""What Ray's own tests expect of search spaces and searchers, without an experiment around them.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import math
import random
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from optuna.trial import TrialState

from holdfast import tune
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher, sample
from holdfast.tune.search.optuna import OptunaSearch
from holdfast.tune.search.variant_generator import RecursiveDependencyError, generate_variants, resolve_nested_dict


def configs(space: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    searcher = BasicVariantGenerator(**settings.pop("made_with", {}))
    searcher.set_search_properties(None, None, space, **settings)
    found: list[dict[str, Any]] = []
    while isinstance(config := searcher.suggest(f"t{len(found)}"), dict):
        found.append(config)
    assert len(found) == searcher.total_samples
    return found


class Single:
    def __call__(self, _config: Any) -> int:
        return 20


SPACES: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"env": "Pong", "foo": "bar"}, [{"env": "Pong", "foo": "bar"}]),
    (
        {"bar": {"grid_search": [True, False]}, "foo": {"grid_search": [1, 2]}, "baz": "asd"},
        [{"bar": bar, "foo": foo, "baz": "asd"} for foo in (1, 2) for bar in (True, False)],
    ),
    (
        {"qux": tune.sample_from(lambda _spec: 2 + 2), "bar": tune.grid_search([True, False])},
        [{"qux": 4, "bar": True}, {"qux": 4, "bar": False}],
    ),
    (
        {
            "x": 1,
            "y": tune.sample_from(lambda spec: spec.config.x + 1),
            "z": tune.sample_from(lambda spec: spec.config.y + 1),
        },
        [{"x": 1, "y": 2, "z": 3}],
    ),
    (
        {"x": tune.grid_search([1, 2]), "y": tune.sample_from(lambda spec: spec.config.x * 100)},
        [{"x": 1, "y": 100}, {"x": 2, "y": 200}],
    ),
    (
        {
            "x": tune.grid_search([tune.sample_from(lambda spec, f=f: spec.config.y * f) for f in (100, 200)]),
            "y": tune.sample_from(lambda _spec: 1),
        },
        [{"x": 100, "y": 1}, {"x": 200, "y": 1}],
    ),
    ({"x": tune.sample_from(Single())}, [{"x": 20}]),
    (
        {
            "x": {"y": {"z": tune.sample_from(lambda _spec: 1)}},
            "y": tune.sample_from(lambda _spec: 12),
            "z": tune.sample_from(lambda spec: spec.config.x.y.z * 100),
        },
        [{"x": {"y": {"z": 1}}, "y": 12, "z": 100}],
    ),
    ({"parameter": tune.grid_search(range(3))}, [{"parameter": number} for number in range(3)]),
    ({"foo": {"eval": "2 + 2"}}, [{"foo": {"eval": "2 + 2"}}]),  # Ray evaluates it
]


@pytest.mark.parametrize(("space", "expected"), SPACES)
def test_configurations_of_a_space(space: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert configs(space) == expected


def test_a_cycle() -> None:
    with pytest.raises(RecursiveDependencyError, match="foo"):
        configs({"foo": tune.sample_from(lambda spec: spec.config.foo)})


def test_nested_dicts_by_path() -> None:
    assert resolve_nested_dict({"a": {"b": 1, "c": 2}, "b": {"a": 3}}) == {
        ("a", "b"): 1,
        ("a", "c"): 2,
        ("b", "a"): 3,
    }


def test_points_replace_samples_and_grids() -> None:
    space = {
        "grid_1": tune.grid_search(["a", "b", "c", "d"]),
        "grid_2": tune.grid_search(["x", "y", "z"]),
        "nested": {
            "random": tune.uniform(2.0, 10.0),
            "dependent": tune.sample_from(lambda spec: -1.0 * spec.config.nested.random),
        },
    }
    points = [{"grid_1": "b"}, {"grid_2": "z"}, {"grid_1": "a", "grid_2": "y"}, {"nested": {"random": 8.0}}]
    for given, first in ((points[:1], 3), (points[1:2], 4), (points[2:3], 1)):
        assert len(configs(space, num_samples=6, made_with={"points_to_evaluate": given})) == first + 5 * 12
    found = configs(space, num_samples=6, made_with={"points_to_evaluate": points})
    assert len(found) == 3 + 4 + 1 + 3 * 12
    assert all(config["grid_1"] == "b" for config in found[:3])
    assert all(config["grid_2"] == "z" for config in found[3:7])
    assert (found[7]["grid_1"], found[7]["grid_2"]) == ("a", "y")
    assert found[8]["nested"] == {"random": 8.0, "dependent": -8.0}
    with pytest.warns(UserWarning, match="'a' is 2"):
        found = configs({"a": 1, "b": tune.randint(0, 3)}, made_with={"points_to_evaluate": [{"a": 2, "b": 2}]})
    assert found == [{"a": 2, "b": 2}]


def test_random_values_stay_within_a_grid_on_request() -> None:
    space = {"grid": tune.grid_search([1, 2, 3]), "rand": tune.uniform(0, 1000)}
    for constant in (False, True):
        found = configs(space, num_samples=4, made_with={"constant_grid_search": constant})
        for start in range(0, 12, 3):
            assert len({config["rand"] for config in found[start : start + 3]}) == (1 if constant else 3)
        assert found[0]["rand"] != found[3]["rand"]


WHOLE: dict[str, tuple[Any, float, float, float | None]] = {  # the domain, what is the least and most, and its step
    "uniform": (tune.uniform(-5, -1), -5, -1, None),
    "quniform": (tune.quniform(3.2, 5.4, 0.2), 3.2, 5.4, 0.2),
    "loguniform": (tune.loguniform(1e-4, 1e-2), 1e-4, 1e-2, None),
    "qloguniform": (tune.qloguniform(1e-4, 1e-1, 5e-5), 1e-4, 1e-1, 5e-5),
    "randint": (tune.randint(-9, 15), -9, 14, 1),
    "lograndint": (tune.lograndint(1, 10), 1, 9, 1),
    "qrandint": (tune.qrandint(-21, 12, 3), -21, 12, 3),
    "qrandint_q3": (tune.qrandint(1, 10, 3), 3, 9, 3),
    "qrandint_q1": (tune.qrandint(1, 5, 1), 1, 5, 1),
    "qlograndint": (tune.qlograndint(2, 20, 2), 2, 20, 2),
    "randn": (tune.randn(10, 2), -10, 30, None),
    "qrandn": (tune.qrandn(10, 2, 0.2), -10, 30, 0.2),
}


@pytest.mark.parametrize("name", WHOLE)
def test_bounds_of_random_values(name: str) -> None:
    domain, least, most, step = WHOLE[name]
    found = [config["x"] for _, config in (next(generate_variants({"x": domain})) for _ in range(1000))]
    assert least <= min(found)
    assert max(found) <= most
    if step is not None:
        assert all(math.isclose(value / step, round(value / step), abs_tol=1e-6) for value in found)
    if "int" in name:
        assert {type(value) for value in found} == {int}
        if name != "qrandint_q1":  # of which Ray never draws the highest
            assert set(found) == set(range(int(least), int(most) + 1, int(step or 1)))


def test_orders_of_magnitude() -> None:
    with pytest.warns(DeprecationWarning, match="changes nothing"):
        other = tune.loguniform(1e-4, 1, base=math.e)
    for domain, low, high in ((tune.loguniform(1e-10, 1e-1), -10, -1), (other, -4, 0)):
        found = domain.sample(None, 1000)
        assert abs(math.log10(min(found)) - low) < 0.2
        assert abs(math.log10(max(found)) - high) < 0.2


SEEDS = [1000, lambda: numpy.random.default_rng(1000), lambda: random.Random(1000)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same(seed: Any) -> None:
    space = {name: domain for name, (domain, *_) in WHOLE.items()}
    made = [configs(space, num_samples=5, made_with={"random_state": seed() if callable(seed) else seed}) for _ in "12"]
    assert made[0] == made[1]


def test_domains_in_steps() -> None:
    with pytest.raises((ValueError, AttributeError)):
        sample.Float(-4.2, 8.3).normal().uniform()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="greater than 0"):
        sample.Float(-4.2, 8.3).loguniform()
    for wrong in ((1e-4, 1e-1, 5e-4), (-1e-1, -1e-4, 5e-4), (0, 32, 3)):
        with pytest.raises(ValueError, match="multiples of q"):
            sample.Float(*wrong[:2]).quantized(wrong[2])
    assert all(-4.2 < value < 8.3 for value in sample.Float(-4.2, 8.3).uniform().sample(size=100))
    assert all(0 <= value <= 33 for value in sample.Float(0, 33).quantized(3).sample(size=100))
    assert all(-3 <= value < 12 for value in sample.Integer(-3, 12).uniform().sample(size=100))
    assert set(sample.Categorical([-2, 0, 2]).uniform().sample(size=200)) == {-2, 0, 2}  # type: ignore[arg-type]
    assert {type(value) for value in tune.choice([1.0, "str"]).sample(size=100)} == {float, str}
    assert len(sample.Function(lambda _spec: 1).sample(size=3)) == 3
    assert abs(numpy.mean(sample.Float(None, None).normal().sample(size=1000))) < 1
    for unbounded in (sample.Float(None, None), sample.Float(0.0, None)):  # type: ignore[arg-type]
        for draw in (unbounded.loguniform, unbounded.uniform):
            with pytest.raises(ValueError, match="both bounds must be numbers"):
                draw()


def two(spec: Any, b: Any) -> Any:
    return spec, b


@pytest.mark.parametrize("function", [lambda: 0, lambda _spec: 1, lambda _spec, _b="ok": 2, partial(two, b="ok")])
def test_functions_that_draw(function: Any) -> None:
    assert tune.sample_from(function).sample(None) is not None
    with pytest.raises(ValueError, match="one argument or none"):
        tune.sample_from(two)


# Searchers around searchers


class Counting(Searcher):
    def __init__(self, most: int = 99, limits_itself: bool = False) -> None:
        super().__init__(metric="result", mode="max")
        self.index, self.most, self.limits_itself = 0, most, limits_itself
        self.limit = 1
        self.heard: list[Any] = []

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        self.index += 1
        return {"score": self.index} if self.index <= self.most else None

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.limit = max_concurrent
        return self.limits_itself

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.heard.append(result)


def scores(searcher: Searcher, *names: str) -> list[int | None]:
    found: list[Any] = [searcher.suggest(name) for name in names]
    return [config and config["score"] for config in found]


@pytest.mark.parametrize(("samples", "repeat", "different"), [(2, 1, 2), (12, 4, 3), (11, 5, 3)])
def test_repetitions(samples: int, repeat: int, different: int) -> None:
    found = scores(Repeater(Counting(), repeat=repeat, set_index=False), *map(str, range(samples)))
    assert len(found) == samples
    assert len(set(found)) == different


def test_the_state_of_a_repeater() -> None:
    inner = Counting()
    first = Repeater(inner, repeat=3, set_index=False)
    assert scores(first, *(f"test_{n}" for n in range(3)), *(f"test_{n}_2" for n in range(2))) == [1, 1, 1, 2, 2]
    second = Repeater(inner, repeat=1, set_index=True)
    second.set_state(first.get_state())
    assert second.repeat == 3
    assert scores(second, "test_2_2", "test_x") == [2, 3]
    for n in range(3):
        second.on_trial_complete(f"test_{n}", {"result": 2})
    for n in range(3):
        second.on_trial_complete(f"test_{n}_2", {"result": -n * 10})
    assert second.searcher.heard == [{"result": 2}, {"result": -10}]
    second.on_trial_complete("test_x", {"result": 3})
    assert scores(second, "test_y") == [3]
    second.on_trial_complete("test_y", {"result": 3})
    assert len(second.searcher.heard) == 2
    assert scores(second, "test_z") == [3]
    second.on_trial_complete("test_z", {"result": 3})
    assert second.searcher.heard[2:] == [{"result": 3}]


def test_the_state_of_a_limiter() -> None:
    inner = Counting()
    first = ConcurrencyLimiter(inner, max_concurrent=2)
    assert scores(first, "1", "2", "3") == [1, 2, None]
    second = ConcurrencyLimiter(inner, max_concurrent=3)
    second.set_state(first.get_state())
    assert scores(second, "4", "5") == [None, None]
    for name in ("1", "2"):
        second.on_trial_complete(name, {"result": 3})
    assert scores(second, "3") == [3]


def test_limits() -> None:
    batch = ConcurrencyLimiter(Counting(), max_concurrent=2, batch=True)
    assert scores(batch, "1", "2", "3") == [1, 2, None]
    batch.on_trial_complete("1", {"result": 3})
    assert scores(batch, "3") == [None]
    batch.on_trial_complete("2", {"result": 3})
    assert scores(batch, "3") == [3]
    for most, is_heard in ((2, True), (10, False)):  # a batch that the searcher cannot fill has ended
        limiter = ConcurrencyLimiter(Counting(most), max_concurrent=5, batch=True)
        scores(limiter, "1", "2", "3")
        for name in ("1", "2"):
            limiter.on_trial_complete(name, {"result": 3})
        assert bool(limiter.searcher.heard) == is_heard
    own = ConcurrencyLimiter(Counting(limits_itself=True), max_concurrent=2, batch=True)
    assert own.searcher.limit == 2
    assert scores(own, "1", "2", "3") == [1, 2, 3], "the searcher limits itself"
    basic = BasicVariantGenerator(max_concurrent=2)
    basic.set_search_properties(None, None, {"a": 1}, num_samples=3)
    assert [basic.suggest(name) is None for name in "123"] == [False, False, True]
    basic.on_trial_complete("1")
    assert basic.suggest("3") == {"a": 1}
    basic.on_trial_complete("2")
    assert basic.suggest("4") == Searcher.FINISHED


# Optuna, as one of the searchers on libraries


def optuna_search(**settings: Any) -> OptunaSearch:
    return OptunaSearch(**{"metric": "metric", "mode": "max", "seed": 3, **settings})


SPACE = {"a": tune.choice([2, 3, 4]), "b": {"x": tune.qrandint(0, 5, 1), "y": 4, "z": tune.loguniform(1e-4, 1e-2)}}


def states(searcher: OptunaSearch) -> list[TrialState]:
    return [trial.state for trial in searcher._ready().trials]


def defined(trial: Any) -> dict[str, Any]:
    trial.suggest_categorical("a", ["1", "2"])
    trial.suggest_float("nest/b", 0, 3)
    return {"constant": 1}


def test_spaces_for_optuna() -> None:
    with pytest.raises(ValueError):
        OptunaSearch.convert_search_space({"grid": tune.grid_search([0, 1])})
    theirs = OptunaSearch.convert_search_space(SPACE)
    first, second = optuna_search(space=theirs).suggest("0"), optuna_search(space=SPACE).suggest("0")
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["a"] == second["a"]
    assert 1e-4 < first["b"]["z"] < 1e-2
    config = optuna_search(space=defined).suggest("0")
    assert isinstance(config, dict)
    assert (config["constant"], set(config["nest"])) == (1, {"b"})
    with pytest.raises(TypeError):
        optuna_search(space=lambda _trial: 1).suggest("0")

    def overlaps(trial: Any) -> None:
        trial.suggest_categorical("a", [1, 2])
        trial.suggest_int("a/b", 0, 3)

    with pytest.raises(TypeError):
        optuna_search(space=overlaps).suggest("0")


def test_optuna_hears_more_than_it_asked_for() -> None:
    searcher = optuna_search(space={"x": tune.uniform(0, 5)})
    searcher.suggest("1")
    for step in range(1, 5):
        report = searcher.on_trial_result if step % 2 else searcher.on_trial_complete
        report("1", {"training_iteration": step, "metric": 1})
    assert states(searcher) == [TrialState.COMPLETE]


def test_optuna_learns_from_points() -> None:
    space = {"x": tune.uniform(0.0, 5.0)}
    known = optuna_search(space=space, points_to_evaluate=[{"x": 1.0}], evaluated_rewards=[1.0])
    assert states(known) == [TrialState.COMPLETE]
    searcher = optuna_search(space=space)
    for more in ({}, {"error": True}, {"pruned": True}):
        searcher.add_evaluated_point({"x": 1.0}, 1.0, intermediate_values=[0.8, 0.9], **more)
    assert states(searcher) == [TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED]
    assert isinstance(searcher.suggest("1"), dict)
    trials = [SimpleNamespace(config={"x": 1.0}, metrics={"metric": 1.0}, error=None)]
    searcher = optuna_search(space=space)
    searcher.add_evaluated_trials(trials, "metric")
    assert states(searcher) == [TrialState.COMPLETE]
    with pytest.raises(TypeError):
        optuna_search(space=defined).add_evaluated_point({"x": 1.0}, 1.0)


def test_optuna_is_saved_and_restored(tmp_path: Path) -> None:
    searcher = optuna_search(space={"x": tune.uniform(0.0, 5.0)})
    for name in ("1", "2", "not_completed"):
        searcher.suggest(name)
    result = {"training_iteration": 1, "metric": 1, "config/x": 1.0, "time_total_s": 1}
    searcher.on_trial_complete("1", result)
    searcher.save(str(tmp_path / "saved"))
    again = optuna_search(space={"x": tune.uniform(0.0, 5.0)})
    again.restore(str(tmp_path / "saved"))
    again.on_trial_complete("2", result)
    again.suggest("3")
    again.on_trial_complete("3", result)
    complete = TrialState.COMPLETE
    assert states(again) == [complete, complete, TrialState.RUNNING, complete]
