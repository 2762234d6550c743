"""What searchers on other libraries have in common, and those whose library the tests have: Optuna's."""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import ConcurrencyLimiter, Searcher, create_searcher
from holdfast.tune.search import library_searcher as library
from holdfast.tune.search.bohb import TuneBOHB
from holdfast.tune.search.flat_space import Choices, FlatSpace, Range
from holdfast.tune.search.optuna import OptunaSearch
from support.tune import search_replay

SPACE = {"a": {"x": tune.uniform(-5, 5)}, "n": tune.qrandint(2, 8, 2), "c": tune.choice([("v",), None]), "k": 7}


class Climber(library.LibrarySearcher):
    """Near the best that it was told, by numbers of the global generators."""

    package = "math"

    def __init__(self, points: Any = None) -> None:
        super().__init__(None, None, None, points, None)

    def _open(self, space: FlatSpace) -> None:
        self.space, self.best = space, (math.inf, dict[str, Any]())
        self.given_up: list[Any] = []

    def _ask(self) -> tuple[Any, dict[str, Any]]:
        params = {name: self._drawn(name, p.theirs) for name, p in self.space.parameters.items()}
        return params, params

    def _drawn(self, name: str, theirs: Any) -> Any:
        if isinstance(theirs, Choices):
            return random.randrange(theirs.count)
        assert isinstance(theirs, Range)
        if theirs.whole:
            return random.randint(int(theirs.low), int(theirs.high))
        near = self.best[1].get(name, 0.0) + numpy.random.normal()
        return float(min(max(near, theirs.low), theirs.high))

    def _attach(self, params: dict[str, Any]) -> Any:
        return params

    def _tell(self, handle: Any, value: float) -> None:
        self.best = min(self.best, (value, handle), key=lambda pair: pair[0])

    def _give_up(self, handle: Any) -> None:
        self.given_up.append(handle)


def started(searcher: Searcher, mode: str = "min", space: Mapping[str, Any] = SPACE) -> Any:
    assert searcher.set_search_properties("loss", mode, space, num_samples=9, seed=5)
    return searcher


def loss(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": (config["a"]["x"] - 1) ** 2 + config["n"]}


@pytest.mark.parametrize("make", [Climber, TuneBOHB, OptunaSearch])
def test_a_replayed_searcher_goes_on_the_same(make: Any) -> None:
    calls = search_replay.run(started(make()), loss, 25)
    search_replay.goes_on_the_same(lambda: started(make()), calls, range(0, len(calls), 7))


@pytest.mark.parametrize("make", [Climber, TuneBOHB, OptunaSearch])
def test_a_saved_searcher_is_restored_before_or_after_it_knows_its_space(make: Any, tmp_path: Path) -> None:
    one = started(make())
    search_replay.run(one, loss, 8)
    ConcurrencyLimiter(one, 4).save(str(tmp_path / "state"))
    before, after = make(), started(make())
    before.restore(str(tmp_path / "state"))
    after.restore(str(tmp_path / "state"))
    assert started(before).suggest("next") == after.suggest("next") == one.suggest("next")
    assert json.dumps(after.get_state()) == json.dumps(one.get_state())


def test_the_global_generators_are_left_as_they_were() -> None:
    random.seed(1), numpy.random.seed(1)
    expected = random.random(), numpy.random.random()
    random.seed(1), numpy.random.seed(1)
    search_replay.run(started(Climber()), loss, 4)
    assert (random.random(), numpy.random.random()) == expected


def test_what_is_told() -> None:
    searcher = started(Climber([{"a/x": 2.0, "n": 4, "c": None}]), "max")
    assert searcher.suggest("point") == {"a": {"x": 2.0}, "n": 4, "c": None, "k": 7}
    searcher.on_trial_complete("point", {"loss": 3.0})
    assert searcher.best == (-3.0, {"a/x": 2.0, "n": 2, "c": 1})
    for trial, result, error in (
        ("failed", {"loss": 9.0}, True),
        ("nan", {"loss": math.nan}, False),
        ("no", None, False),
    ):
        searcher.suggest(trial)
        searcher.on_trial_complete(trial, result, error=error)
    assert len(searcher.given_up) == 3
    searcher.add_evaluated_point({"a": {"x": 1.0}, "n": 2, "c": ("v",)}, 7.0)
    assert searcher.best[0] == -7.0
    searcher.suggest("changed")
    searcher.replay_suggestion("changed", {"a": {"x": 0.5}, "n": 8, "c": ["v"], "k": 7})
    searcher.on_trial_complete("changed", {"loss": 8.0})
    assert searcher.best == (-8.0, {"a/x": 0.5, "n": 4, "c": 0})


def test_mistakes_are_said() -> None:
    with pytest.raises(RuntimeError, match="Climber has no search space"):
        Climber().suggest("one")
    searcher = Climber()
    assert searcher.set_search_properties(None, None, SPACE, seed=1)
    with pytest.raises(RuntimeError, match="no metric and mode"):
        searcher.suggest("one")
    with pytest.raises(ValueError, match="nothing to search"):
        started(Climber(), space={"k": 1}).suggest("one")
    with pytest.raises(ValueError, match="'c' has no value"):
        started(Climber([{"a/x": 1.0, "n": 2}])).suggest("one")
    with pytest.raises(ValueError, match="'y' is not in the search space"):
        started(Climber([{"y": 1.0}])).suggest("one")
    with pytest.raises(ValueError, match="which it cannot sample"):
        Climber().set_search_properties("loss", "min", {"x": tune.randn()})


@pytest.mark.parametrize(
    ("name", "package", "given"),
    [
        ("ax", "ax", {}),
        ("bayesopt", "bayes_opt", {}),
        ("hyperopt", "hyperopt", {}),
        ("nevergrad", "nevergrad", {}),
        ("zoopt", "zoopt", {"budget": 3}),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    name: str, package: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    importlib.import_module(f"holdfast.tune.search.{name}")
    with pytest.raises(ImportError, match=rf"pip install 'holdfast\[{name}\]'"):
        create_searcher(name, **given)


@pytest.mark.parametrize("short", [1, 27])
def test_bohb_orders_trials_by_their_budgets(short: int) -> None:
    """Trials with a better value do not count as better than those that came further."""
    searcher = started(TuneBOHB(bohb_config={"min_points_in_model": 20}))
    for number in range(60):
        config = searcher.suggest(str(number))
        far = number % 2 == 0
        value = abs(config["a"]["x"] - 4) if far else -10 + abs(config["a"]["x"] + 4)
        searcher.on_trial_complete(str(number), {"loss": value, "training_iteration": 27 if far else short})
    mean = sum(searcher.suggest(f"next{n}")["a"]["x"] for n in range(10)) / 10
    assert mean > 1 if short == 1 else mean < -1


def test_bohb_limits_what_runs_and_not_what_is_paused() -> None:
    searcher = started(TuneBOHB(max_concurrent=2))
    assert searcher.suggest("one")
    assert searcher.suggest("two")
    assert searcher.suggest("three") is None
    searcher.on_pause("one")
    assert searcher.suggest("three")
    with pytest.warns(UserWarning, match="'random_fraction'"):
        TuneBOHB(bohb_config={"random_fraction": 0.3})


def test_a_scheduler_gives_its_state_within_a_process() -> None:
    one, other = ASHAScheduler(metric="loss", mode="min"), ASHAScheduler()
    other.set_state(one.get_state())
    assert (other.metric, other.mode) == ("loss", "min")
