"""A search by a named searcher, one trial at a time: ``python -m support.searchers.searched DIRECTORY SEARCHER``."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any

from holdfast import tune
from holdfast.tune.search import Searcher, create_searcher

SPACE = {"a": {"x": tune.uniform(-5, 5), "lr": tune.loguniform(1e-5, 1)}, "n": tune.randint(1, 9), "k": 7}
MIXED = {**SPACE, "q": tune.quniform(0, 1, 0.25), "c": tune.choice(["u", ("v",), None]), "m": tune.lograndint(2, 99)}
MADE_WITH: dict[str, dict[str, Any]] = {
    "ax": {"random_seed": 3},
    "bayesopt": {"random_state": 3, "random_search_steps": 3},
    "bohb": {"seed": 3, "bohb_config": {"min_points_in_model": 3}},
    "hyperopt": {"random_state_seed": 3, "n_initial_points": 3},
    "nevergrad": {"seed": 3, "optimizer": "TwoPointsDE"},
    "optuna": {"seed": 3},
    "zoopt": {"seed": 3, "budget": 20, "parallel_num": 4},
}
TRIALS = {"ax": 7}  # whose models take long to fit; two of them come after its random trials
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch, before it is imported: threads of small models only wait


def space_of(name: str) -> dict[str, Any]:
    if name == "ax":
        return {"a": {"x": tune.uniform(-5, 5)}, "c": tune.choice(["u", ("v",)])}
    return SPACE if name == "bayesopt" else MIXED


def made(name: str) -> Searcher:
    if name == "ax":  # its constructor takes any keyword
        from holdfast.tune.search.ax import AxSearch

        return AxSearch(**MADE_WITH[name])
    return create_searcher(name, **MADE_WITH[name])


def loss(config: dict[str, Any]) -> float:
    rate = config["a"].get("lr", 1e-3)
    return float((config["a"]["x"] - 1) ** 2 + (math.log10(rate) + 3) ** 2 + abs(config.get("n", 4) - 4))


def train_fn(config: dict[str, Any]) -> None:
    time.sleep(0.02)  # so that a kill finds something under way
    tune.report({"loss": loss(config)})


def tuner(directory: str, name: str) -> tune.Tuner:
    return tune.Tuner(
        train_fn,
        param_space=space_of(name),
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=TRIALS.get(name, 12), max_concurrent_trials=1, search_alg=made(name)
        ),
        run_config=tune.RunConfig(storage_path=directory, name=name, verbose=0),
    )


if __name__ == "__main__":
    tuner(*sys.argv[1:]).fit()
