"""Search by Optuna: spaces of all kinds, what it learns, and replay with every sampler."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest

from support.tune.search_replay import Start, goes_on_the_same, run, suggestions

optuna = pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402
from optuna.trial import TrialState  # noqa: E402

from holdfast.tune import search_space as tune  # noqa: E402
from holdfast.tune.search import ConcurrencyLimiter, Repeater  # noqa: E402
from holdfast.tune.search.optuna import OptunaSearch  # noqa: E402
from holdfast.tune.search.optuna_space import OptunaSpace  # noqa: E402

samplers = optuna.samplers
SPACE = {"x": tune.uniform(-5, 5), "deep": {"n": tune.randint(1, 9)}, "kind": tune.choice(["a", "b"]), "fixed": 3}
NUMBERS = {"x": tune.uniform(-5, 5), "y": tune.loguniform(0.1, 10)}


def objective(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": (config["x"] - 1) ** 2 + config.get("y", 0), "cost": config["x"]}


def search(space: Any = SPACE, **options: Any) -> OptunaSearch:
    searcher = OptunaSearch(**{"seed": 3, "metric": "loss", "mode": "min", **options})
    assert searcher.set_search_properties(None, None, space)
    return searcher


def study_of(searcher: OptunaSearch) -> Any:
    return searcher._ready()


def test_every_domain_is_sampled_within_its_bounds_and_constants_stay() -> None:
    space = {
        "f": tune.uniform(0, 1),
        "qf": tune.quniform(0.1, 0.7, 0.1),
        "lf": tune.loguniform(1e-4, 1),
        "qlf": tune.qloguniform(0.1, 10, 0.1),
        "i": tune.randint(0, 5),
        "qi": tune.qrandint(0, 10, 5),
        "li": tune.lograndint(1, 100),
        "qli": tune.qlograndint(8, 64, 8),
        "plain": tune.choice(["a", 1, None]),
        "odd": tune.choice([[1, 2], (3,), {"k": 1}]),
        "alike": tune.choice([1, True]),
        "in": {"a": ["list", tune.uniform(2, 3)]},
        "constant": {"k": [1]},
        "sum": tune.sample_from(lambda config: config["f"] + config["i"]),
    }
    seen: dict[str, set[str]] = {name: set() for name in space}
    searcher = search(space, sampler=samplers.RandomSampler(seed=1))
    for number in range(60):
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        for name, value in config.items():
            seen[name].add(repr(value))
            domain = space[name]
            assert domain.is_valid(value) if isinstance(domain, tune.Domain) else True
        assert config["sum"] == config["f"] + config["i"]
        assert config["in"]["a"][0] == "list"
        assert 2 <= config["in"]["a"][1] <= 3
    assert seen["constant"] == {"{'k': [1]}"}
    assert seen["i"] == {"0", "1", "2", "3", "4"}
    assert seen["qi"] == {"0", "5", "10"}
    assert seen["qf"] == {"0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7"}
    assert seen["odd"] == {"[1, 2]", "(3,)", "{'k': 1}"}
    assert seen["alike"] == {"1", "True"}
    assert seen["plain"] == {"'a'", "1", "None"}


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ({"a": {"b": tune.grid_search([1, 2])}}, "'a/b' is a grid_search; use choice"),
        ({"a": tune.randn()}, "'a' is Normal.*cannot sample; use uniform"),
    ],
)
def test_what_optuna_cannot_sample_is_said_at_once(space: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        search(space)


def test_optunas_own_distributions_nested_or_by_flat_names() -> None:
    space = {"x": FloatDistribution(0, 1), "a/b": IntDistribution(1, 3), "c": {"d": CategoricalDistribution(["q"])}}
    config = OptunaSearch(space, metric="loss", mode="min", seed=0).suggest("t0")
    assert isinstance(config, dict)
    assert config == {"x": config["x"], "a": {"b": config["a"]["b"]}, "c": {"d": "q"}}


def test_a_space_of_its_own_takes_the_metric_but_no_other_space() -> None:
    searcher = OptunaSearch({"x": tune.uniform(0, 1)}, seed=0)
    assert not searcher.set_search_properties("loss", "max", SPACE)
    assert searcher.set_search_properties("loss", "max", {"constant": 1})
    assert (searcher.metric, searcher.mode) == ("loss", "max")
    assert study_of(searcher).direction.name == "MAXIMIZE"


def define(trial: Any) -> dict[str, Any]:
    if trial.suggest_categorical("kind", ["linear", "net"]) == "net":
        trial.suggest_int("net/layers", 1, 3)
    trial.suggest_float("x", -5, 5)
    return {"constant": {"k": 1}}


def test_a_function_defines_the_space_as_it_runs() -> None:
    searcher = OptunaSearch(define, metric="loss", mode="min", seed=1)
    configs = [searcher.suggest(f"t{number}") for number in range(12)]
    assert {"net" in config for config in configs if isinstance(config, dict)} == {True, False}
    assert all(config["constant"] == {"k": 1} for config in configs if isinstance(config, dict))
    assert all(("net" in c) == (c["kind"] == "net") for c in configs if isinstance(c, dict))
    searcher = OptunaSearch(lambda _trial: 5, metric="loss", mode="min")
    with pytest.raises(TypeError, match="returned 5; return a dict or None"):
        searcher.suggest("t0")


def test_a_better_region_is_found() -> None:
    searcher = search(NUMBERS)
    calls = run(searcher, objective, trials=60)
    xs = [config["x"] for config in suggestions(calls)]
    assert sum(abs(x - 1) for x in xs[-15:]) < sum(abs(x - 1) for x in xs[:15])


def test_points_come_first_and_the_rest_of_them_is_sampled() -> None:
    points = [{"x": 0.5, "deep": {"n": 2}, "kind": "b"}, {"deep/n": 7}]
    searcher = search(points_to_evaluate=points)
    first, second, third = (searcher.suggest(f"t{number}") for number in range(3))
    assert first == {"x": 0.5, "deep": {"n": 2}, "kind": "b", "fixed": 3}
    assert isinstance(second, dict)
    assert second["deep"] == {"n": 7}
    assert third != first


def test_points_that_were_evaluated_are_not_tried_again() -> None:
    points = [{"x": 1.0, "y": 0.5}, {"x": 2.0, "y": 1.0}]
    searcher = search(NUMBERS, points_to_evaluate=points, evaluated_rewards=[0.5, 2.0])
    assert searcher.suggest("t0") not in points
    trials = study_of(searcher).trials
    assert [(trial.params, trial.value) for trial in trials[:2]] == [(points[0], 0.5), (points[1], 2.0)]


def test_results_of_an_earlier_experiment_can_be_learnt_from() -> None:
    class Outcome:
        def __init__(self, config: dict[str, Any], loss: float, error: Exception | None = None) -> None:
            self.config, self.metrics, self.error = config, {"loss": loss}, error

    searcher = search(NUMBERS)
    known = [Outcome({"x": 1, "y": 1, "other": 2}, 0.5), Outcome({"x": 2, "y": 1}, math.nan)]
    searcher.add_evaluated_trials([*known, Outcome({"x": 3, "y": 1}, 1.0, ValueError())], "loss")
    assert [trial.state for trial in study_of(searcher).trials] == [TrialState.COMPLETE, TrialState.FAIL]
    with pytest.raises(ValueError, match="no value for 'y'"):
        searcher.add_evaluated_point({"x": 1}, 0.5)


@pytest.mark.parametrize(
    ("last", "error", "state", "value"),
    [
        ({"loss": 0.5}, False, TrialState.COMPLETE, 0.5),
        ({"loss": math.inf}, False, TrialState.PRUNED, None),
        ({"loss": -math.inf}, False, TrialState.PRUNED, None),
        ({"loss": math.nan}, False, TrialState.PRUNED, None),
        ({"other": 1}, False, TrialState.COMPLETE, 4.0),  # what was reported before it
        (None, True, TrialState.FAIL, None),
        ({"loss": 0.5}, True, TrialState.FAIL, None),
    ],
)
def test_what_optuna_is_told_of_a_trial(last: Any, error: bool, state: Any, value: float | None) -> None:
    searcher = search()
    searcher.suggest("t0")
    searcher.on_trial_result("t0", {"loss": 4.0, "training_iteration": 1})
    searcher.on_trial_result("t0", {"loss": math.nan})
    searcher.on_trial_complete("t0", last, error)
    searcher.on_trial_complete("t0", {"loss": 9.0})  # it has ended
    searcher.on_trial_complete("stranger", {"loss": 9.0})
    (trial,) = study_of(searcher).trials
    assert (trial.state, trial.value) == (state, value)


def test_a_trial_that_is_resumed_after_its_error_is_learnt_from_in_the_end() -> None:
    searcher = search()
    config = searcher.suggest("t0")
    assert isinstance(config, dict)
    searcher.on_trial_complete("t0", error=True)
    searcher.on_trial_resume("t0", config)
    assert searcher.suggest("t0") == config
    searcher.on_trial_complete("t0", {"loss": 0.5})
    failed, complete = study_of(searcher).trials
    assert (failed.state, complete.state) == (TrialState.FAIL, TrialState.COMPLETE)
    assert failed.params == complete.params
    assert searcher.suggest("t1") == asked_twice()[1]  # it took nothing from the sampler's randomness


def asked_twice() -> list[Any]:
    searcher = search()
    return [searcher.suggest("t0"), searcher.suggest("t1")]


def test_a_trial_that_never_had_the_metric_is_no_error() -> None:
    searcher = search()
    searcher.suggest("t0")
    searcher.on_trial_complete("t0", {"other": 1})
    assert study_of(searcher).trials[0].state == TrialState.PRUNED


def test_several_objectives() -> None:
    def start() -> OptunaSearch:
        return search(NUMBERS, metric=["loss", "cost"], mode=["min", "max"])

    calls = run(start(), objective, trials=25)
    goes_on_the_same(start, calls, range(0, len(calls), 7))
    searcher = start()
    searcher.suggest("t0")
    searcher.on_trial_complete("t0", {"loss": 1.0, "cost": 2.0})
    assert study_of(searcher).trials[0].values == [1.0, 2.0]
    assert [direction.name for direction in study_of(searcher).directions] == ["MINIMIZE", "MAXIMIZE"]


REPLAYED: dict[str, Start] = {
    "tpe": lambda: search(sampler=samplers.TPESampler(seed=1, n_startup_trials=4)),
    "default": lambda: search(points_to_evaluate=[{"x": 0.0}]),
    "random": lambda: search(sampler=samplers.RandomSampler(seed=1)),
    "define by run": lambda: OptunaSearch(define, metric="loss", mode="min", seed=2),
    "with functions": lambda: search(
        {**SPACE, "twice": tune.sample_from(lambda config: tune.uniform(0, config["x"] + 9))}
    ),
    "odd choices": lambda: search({"x": tune.choice([1, True, 2.5]), "q": tune.qloguniform(0.1, 1, 0.1)}),
    "limited": lambda: ConcurrencyLimiter(search(), 2, batch=True),
    "repeated": lambda: Repeater(search(), 2),
    "nsga": lambda: search(NUMBERS, sampler=samplers.NSGAIISampler(seed=1, population_size=4)),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_interrupted_anywhere_a_search_goes_on_the_same(name: str) -> None:
    calls = run(REPLAYED[name](), objective, trials=12)
    goes_on_the_same(REPLAYED[name], calls)


def test_cma_es_goes_on_the_same() -> None:
    pytest.importorskip("cmaes")

    def start() -> OptunaSearch:
        return search(NUMBERS, sampler=samplers.CmaEsSampler(seed=1, n_startup_trials=2))

    calls = run(start(), objective, trials=20)
    goes_on_the_same(start, calls, range(0, len(calls), 3))


def test_gaussian_processes_go_on_the_same() -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("torch")

    def start() -> OptunaSearch:
        return search(NUMBERS, sampler=samplers.GPSampler(seed=1, n_startup_trials=2))

    calls = run(start(), objective, trials=5)
    middle = len(calls) // 2  # each cut fits all models again, which takes seconds
    goes_on_the_same(start, calls, range(middle, middle + 1))


def test_without_a_seed_the_trials_that_were_are_kept_and_learnt_from() -> None:
    def start() -> OptunaSearch:
        return search(NUMBERS, seed=None, points_to_evaluate=[{"x": 1.0}, {"x": 2.0}])

    first, second = start(), start()
    calls = run(first, objective, trials=6)
    for call in calls:
        if call.kind == "suggest":
            second.replay_suggestion(call.trial_id, call.suggested)
        elif call.kind == "complete":
            second.on_trial_complete(call.trial_id, call.result, call.error)

    def learnt(searcher: OptunaSearch) -> list[Any]:
        done = [t for t in study_of(searcher).trials if t.state == TrialState.COMPLETE]
        return sorted((t.params["x"], t.params["y"], t.value) for t in done)

    assert learnt(second) == learnt(first)
    assert len(learnt(first)) > 2


def test_the_experiments_seed_is_used_only_if_there_is_none() -> None:
    def seeded(own: int | None, default: int) -> Any:
        searcher = OptunaSearch(metric="loss", mode="min", seed=own)
        searcher.set_search_properties(None, None, SPACE, seed=default)
        return searcher.suggest("t0")

    assert seeded(None, 1) == seeded(None, 1) == seeded(1, 2)
    assert seeded(None, 1) != seeded(None, 2)


def test_a_storage_of_the_users_has_the_study_once_also_after_a_restore() -> None:
    storage = optuna.storages.InMemoryStorage()  # stands for one on disk: it outlives the searcher

    def start() -> OptunaSearch:
        points = [{"x": 1.0, "y": 1.0}, {"x": 2.0, "y": 2.0}, {"x": 3.0, "y": 3.0}]
        return search(NUMBERS, storage=storage, points_to_evaluate=points, evaluated_rewards=None)

    first = start()
    configs = [first.suggest(f"t{number}") for number in range(5)]
    first.on_trial_result("t0", {"loss": 3.0, "training_iteration": 1})
    first.on_trial_complete("t0", {"loss": 3.0})
    second = start()
    for number, config in enumerate(configs):
        assert isinstance(config, dict)
        second.replay_suggestion(f"t{number}", config)
        assert second.suggest(f"t{number}") == config
    second.on_trial_complete("t0", {"loss": 3.0})
    second.on_trial_complete("t1", {"loss": 2.0})
    assert second.suggest("t5") not in configs
    trials = study_of(second).trials
    assert [trial.value for trial in trials] == [3.0, 2.0, None, None, None, None]
    assert trials[0].intermediate_values == {1: 3.0}


def test_a_result_costs_the_same_however_many_came_before() -> None:
    searcher = search()
    searcher.suggest("t0")
    for iteration in range(2000):
        searcher.on_trial_result("t0", {"loss": 1.0, "training_iteration": iteration})
    assert study_of(searcher).trials[0].intermediate_values == {}
    searcher.on_trial_complete("t0", {"loss": 1.0})
    assert (searcher._live, searcher._latest) == ({}, {})


def test_optuna_says_nothing_about_the_study_and_keeps_its_verbosity(capfd: pytest.CaptureFixture[str]) -> None:
    level = optuna.logging.get_verbosity()
    search().suggest("t0")
    assert optuna.logging.get_verbosity() == level
    assert capfd.readouterr() == ("", "")


def test_without_optuna_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast\[optuna\]'"):
        OptunaSearch()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: OptunaSearch(sampler="tpe"), TypeError, "sampler='tpe'"),
        (lambda: OptunaSearch(sampler=samplers.TPESampler), TypeError, "an instance"),
        (lambda: OptunaSearch(storage="sqlite:///x"), TypeError, "storage='sqlite"),
        (lambda: OptunaSearch(evaluated_rewards=[1]), ValueError, "one for each"),
        (lambda: OptunaSearch(metric="loss", mode="min").suggest("t"), RuntimeError, "no search space"),
        (lambda: OptunaSearch(NUMBERS).suggest("t"), RuntimeError, "no metric and mode"),
        (lambda: OptunaSearch(NUMBERS, mode=["min", "max"]).suggest("t"), RuntimeError, "their names in metric="),
        (lambda: search(points_to_evaluate=[{"z": 1}]).suggest("t"), ValueError, "points_to_evaluate.0.*'z' is not in"),
        (lambda: search(points_to_evaluate=[3]).suggest("t"), TypeError, "pass a dict"),
        (
            lambda: search({"c": tune.choice([(1,), (2,)])}, points_to_evaluate=[{"c": (3,)}]).suggest("t"),
            ValueError,
            "'c' is .3,., which is none of",
        ),
        (
            lambda: search({"q": tune.qrandint(0, 10, 5)}, points_to_evaluate=[{"q": "x"}]).suggest("t"),
            ValueError,
            "'q' is 'x', which is not a number",
        ),
        (lambda: OptunaSearch(define, "loss", "min").add_evaluated_point({}, 1), TypeError, "not a function"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_config_and_what_optuna_calls_it_are_each_others_inverse() -> None:
    space = OptunaSpace({"q": tune.quniform(0, 1, 0.1), "c": tune.choice([[1], {"k": 2}]), "n": tune.qrandint(0, 8, 4)})
    for params in ({"q": q, "c": c, "n": n} for q in range(11) for c in range(2) for n in range(3)):
        assert space.params(space.config(params)) == params
