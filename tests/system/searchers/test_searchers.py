"""Searchers on their real libraries: a fresh one that is told what another one was decides as that one does."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.search import Searcher
from support.searchers.searched import MADE_WITH, MIXED, SPACE, TRIALS, loss, made, space_of, tuner
from support.tune import search_replay

pytestmark = [pytest.mark.searchers, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]
NAMES = sorted(MADE_WITH)


def fresh(name: str, mode: str = "min") -> Searcher:
    searcher = made(name)
    assert searcher.set_search_properties("loss", mode, space_of(name), num_samples=20, seed=11)
    return searcher


@pytest.mark.parametrize("name", NAMES)
def test_a_replayed_searcher_goes_on_the_same(name: str) -> None:
    trials = TRIALS.get(name, 20)
    calls = search_replay.run(fresh(name), lambda config: {"loss": loss(config)}, trials)
    assert sum(isinstance(found, dict) for found in search_replay.suggestions(calls)) == trials
    cuts = range(0, len(calls) + 1, len(calls) // (2 if name == "ax" else 6))
    search_replay.goes_on_the_same(lambda: fresh(name), calls, cuts)


@pytest.mark.parametrize("name", NAMES)
def test_a_searcher_is_saved_and_restored(name: str, tmp_path: Path) -> None:
    one, other = fresh(name), fresh(name)
    search_replay.run(one, lambda config: {"loss": loss(config)}, 6)
    one.save(str(tmp_path / "state"))
    json.loads((tmp_path / "state").read_text())
    other.restore(str(tmp_path / "state"))
    assert other.suggest("next") == one.suggest("next")
    assert json.dumps(other.get_state()) == json.dumps(one.get_state())


@pytest.mark.parametrize("name", NAMES)
def test_points_come_first_and_results_are_learned_from(name: str) -> None:
    """With "max" of the negated loss it decides as with "min" of the loss."""
    point = {"a": {"x": 1.0, "lr": 1e-3}, "n": 4, "q": 0.5, "c": ("v",), "m": 5}
    point = {key: value for key, value in point.items() if key in space_of(name)}
    if name == "ax":
        point["a"] = {"x": 1.0}
    found = []
    for mode, sign in (("min", 1), ("max", -1)):
        given = {**MADE_WITH[name], "points_to_evaluate": [point]}
        searcher = type(made(name))(**given)
        assert searcher.set_search_properties("loss", mode, space_of(name), num_samples=20, seed=11)
        first = searcher.suggest("first")
        assert isinstance(first, dict)
        assert {key: first[key] for key in point} == point
        searcher.on_trial_complete("first", {"loss": sign * loss(first)})
        search_replay.run(searcher, lambda config, sign=sign: {"loss": sign * loss(config)}, 5)
        found.append(searcher.suggest("last"))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_or_wrong_is_said(name: str) -> None:
    with pytest.raises(RuntimeError, match="no search space"):
        made(name).suggest("one")
    searcher = made(name)
    with pytest.raises(ValueError, match="is a grid_search; use choice"):
        searcher.set_search_properties("loss", "min", {"x": tune.grid_search([1, 2])}, num_samples=1, seed=0)
    if name == "bayesopt":
        searcher = made(name)
        searcher.set_search_properties("loss", "min", MIXED, num_samples=1, seed=0)
        with pytest.raises(ValueError, match="'c' is a choice"):
            searcher.suggest("one")


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_and_restored_experiment_decides_as_the_undisturbed_one(name: str, tmp_path: Path) -> None:
    plain = tuner(str(tmp_path / "plain"), name).fit()
    wanted = [result.config for result in plain]
    assert len(wanted) == TRIALS.get(name, 12)
    assert all(result.error is None for result in plain)
    choice, storage = random.Random(name), tmp_path / "killed"
    command = [sys.executable, "-m", "support.searchers.searched", str(storage), name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOLDFAST_DISPLAY": "off"}
    for _ in range(3):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        seen = _trials(storage, name)
        deadline = time.monotonic() + 300
        while process.poll() is None and _trials(storage, name) < seen + choice.randint(1, 3):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = tune.ExperimentAnalysis(storage / name)
    assert [dict(trial.config) for trial in found.trials] == wanted


def _trials(storage: Path, name: str) -> int:
    return len(list((storage / name).glob("train_fn_*")))


def test_hyperopts_own_space_with_conditions() -> None:
    from hyperopt import hp

    from holdfast.tune.search.hyperopt import HyperOptSearch

    kinds = [{"kind": "a", "depth": hp.quniform("depth", 1, 5, 1)}, {"kind": "b", "rate": hp.loguniform("rate", -5, 0)}]
    space = {"model": hp.choice("model", kinds), "x": hp.uniform("x", -5, 5)}

    def start() -> HyperOptSearch:
        given: dict[str, Any] = {"points_to_evaluate": [{"model": 0, "depth": 3.0, "x": 2.0}]}
        searcher = HyperOptSearch(space, "loss", "min", n_initial_points=4, random_state_seed=5, **given)
        assert searcher.set_search_properties(None, None, {}, num_samples=9, seed=1)
        return searcher

    calls = search_replay.run(start(), lambda config: {"loss": config["x"] ** 2}, 12)
    first = search_replay.suggestions(calls)[0]
    assert first == {"model": {"kind": "a", "depth": 3.0}, "x": 2.0}
    assert {found["model"]["kind"] for found in search_replay.suggestions(calls) if found} == {"a", "b"}
    search_replay.goes_on_the_same(start, calls, range(0, len(calls), 5))
    assert copy.deepcopy(start()).suggest("one") == start().suggest("one"), "an experiment works with a copy"


def test_ax_keeps_to_its_constraints() -> None:
    from holdfast.tune.search.ax import AxSearch

    searcher = AxSearch(
        {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)},
        metric="loss",
        mode="min",
        parameter_constraints=["x + y <= 0.8"],
        outcome_constraints=["cost <= 5"],
        random_seed=1,
    )
    for number in range(6):
        config = searcher.suggest(str(number))
        assert isinstance(config, dict)
        assert config["x"] + config["y"] <= 0.8 + 1e-6
        searcher.on_trial_complete(str(number), {"loss": config["x"], "cost": 3.0})
    searcher.suggest("last")
    with pytest.raises(ValueError, match="has no 'cost'"):
        searcher.on_trial_complete("last", {"loss": 1.0})


def test_bohb_takes_a_configspace() -> None:
    import ConfigSpace as configspace

    from holdfast.tune.search.bohb import TuneBOHB

    space = configspace.ConfigurationSpace(
        {"x": (0.0, 1.0), "n": (1, 9), "c": ["a", "b"], "k": configspace.Constant("k", 3)}
    )
    searcher = TuneBOHB(space, metric="loss", mode="min", seed=1)
    config = searcher.suggest("one")
    assert isinstance(config, dict)
    assert 0 <= config["x"] <= 1
    assert config["n"] in range(1, 10)
    assert config["c"] in ("a", "b")
    assert config["k"] == 3


def test_bayesopt_learns_from_an_analysis(tmp_path: Path) -> None:
    from holdfast.tune.search.bayesopt import BayesOptSearch

    earlier = tuner(str(tmp_path), "optuna").fit()
    assert len(earlier) == 12
    analysis = tune.ExperimentAnalysis(tmp_path / "optuna")
    searcher = BayesOptSearch(SPACE, "loss", "min", random_search_steps=0, analysis=analysis)
    searcher.suggest("one")
    assert len(searcher._optimizer.space) == 12


def test_bayesopt_draws_at_random_what_comes_up_again() -> None:
    """While others run its model knows no better than to suggest the same; ``loguniform`` it searches by logarithms."""
    from holdfast.tune.search.bayesopt import BayesOptSearch

    space = {"x": tune.uniform(0, 1), "lr": tune.loguniform(1e-6, 1)}
    searcher = BayesOptSearch(space, "loss", "min", random_search_steps=8, random_state=1)
    rates = []
    for number in range(8):
        config = searcher.suggest(str(number))
        assert isinstance(config, dict)
        rates.append(config["lr"])
        searcher.on_trial_complete(str(number), {"loss": (config["x"] - 0.4) ** 2})
    assert sum(rate < 1e-3 for rate in rates) >= 2, "of a uniform draw hardly one in a thousand is"
    found = [searcher.suggest(name) for name in ("one", "other", "third")]
    assert all(isinstance(config, dict) for config in found)
    assert len({str(config) for config in found}) == 3
