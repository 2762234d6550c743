"""The calls of Ray Tune's examples that no other test makes: each once, small, through to what the example prints."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.logger import LoggerCallback
from holdfast.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler, PopulationBasedTraining
from holdfast.tune.search import ConcurrencyLimiter

SPACE = {"width": tune.randint(10, 100), "height": tune.loguniform(10, 100)}


def loss(step: int, width: float, height: float) -> float:
    return float(1 / (0.1 + width * step / 100) + height * 0.1)


class Steps(tune.Trainable):
    """The class API: a loss from the number of steps, saved as JSON."""

    def setup(self, config: dict[str, Any]) -> None:
        self.at = 0
        self.width, self.height = config["width"], config["height"]

    def step(self) -> dict[str, Any]:
        self.at += 1
        return {"iterations": self.at, "mean_loss": loss(self.at, self.width, self.height)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "at.json").write_text(json.dumps(self.at))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.at = json.loads(Path(checkpoint, "at.json").read_text())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.width, self.height = new_config["width"], new_config["height"]
        return True


def steps(config: dict[str, Any]) -> None:
    """The same as a function."""
    checkpoint, at = tune.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            at = json.loads(Path(directory, "at.json").read_text())
    for step in range(at + 1, config.get("steps", 6) + 1):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "at.json").write_text(json.dumps(step))
            metrics = {"iterations": step, "mean_loss": loss(step, config["width"], config["height"])}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def run(storage: Path, **options: Any) -> tune.RunConfig:
    return tune.RunConfig(name="example", storage_path=str(storage), verbose=0, **options)


def searched(**options: Any) -> tune.TuneConfig:
    return tune.TuneConfig(metric="mean_loss", mode="min", **options)


@pytest.mark.parametrize("trainable", [Steps, steps])
def test_hyperband(tmp_path: Path, trainable: Any) -> None:
    config = searched(num_samples=6, scheduler=HyperBandScheduler(max_t=6, reduction_factor=3))
    run_config = run(tmp_path, stop={"training_iteration": 6}, failure_config=tune.FailureConfig(fail_fast=True))
    grid = tune.Tuner(trainable, param_space=SPACE, tune_config=config, run_config=run_config).fit()
    assert not grid.errors
    assert len(grid) == 6
    lengths = [result.metrics["training_iteration"] for result in grid]
    assert max(lengths) == 6
    assert min(lengths) < 6, "the worst were stopped early"
    assert grid.get_best_result().config.keys() == SPACE.keys()


def test_population_based_training_of_a_class(tmp_path: Path) -> None:
    random.seed(0)
    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"width": lambda: random.uniform(10, 100), "height": [10, 20, 40, 80]},
    )
    config = searched(num_samples=4, scheduler=pbt)
    checkpoints = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_score_attribute="mean_loss", num_to_keep=4)
    run_config = run(tmp_path, stop={"training_iteration": 8}, checkpoint_config=checkpoints)
    grid = tune.Tuner(Steps, param_space=SPACE, tune_config=config, run_config=run_config).fit()
    assert not grid.errors
    assert [result.metrics["training_iteration"] for result in grid] == [8] * 4
    assert [result.metrics["iterations"] for result in grid] == [8] * 4, "no step is trained twice, none is left out"
    changes = (tmp_path / "example" / "pbt_global.txt").read_text().splitlines()
    assert changes
    assert (best := grid.get_best_result().checkpoint) is not None
    assert json.loads(Path(best.path, "at.json").read_text()) == 8


def test_pb2(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pb2 = tune.schedulers.pb2.PB2(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_bounds={"width": [10.0, 100.0]}
    )
    space = {"width": 20.0, "height": tune.grid_search([10, 20, 40, 80]), "steps": 8}
    run_config = run(tmp_path, stop={"training_iteration": 8}, failure_config=tune.FailureConfig(fail_fast=True))
    tuner = tune.Tuner(steps, param_space=space, tune_config=searched(scheduler=pb2), run_config=run_config)
    grid = tuner.fit()
    assert not grid.errors
    assert (tmp_path / "example" / "pbt_global.txt").read_text()
    assert all(10 <= result.config["width"] <= 100 for result in grid)
    assert {result.config["width"] for result in grid} != {20.0}


class Heard(LoggerCallback):
    def __init__(self) -> None:
        self.heard: list[tuple[str, float]] = []

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.heard.append((str(trial), result["mean_loss"]))


def named(trial: Any) -> str:
    return f"{trial.trainable_name}_{trial.trial_id}_123"


def test_a_logger_and_names_of_ones_own(tmp_path: Path) -> None:
    heard = Heard()
    config = searched(num_samples=2, trial_name_creator=named, trial_dirname_creator=named)
    run_config = run(tmp_path, callbacks=[heard], stop={"training_iteration": 2})
    grid = tune.Tuner(steps, param_space=SPACE, tune_config=config, run_config=run_config).fit()
    names = {Path(result.path).name for result in grid}
    assert {name for name, _ in heard.heard} == names
    assert all(name.startswith("steps_") and name.endswith("_123") for name in names)
    assert len(heard.heard) == 4


def define_by_run(trial: Any) -> dict[str, Any]:
    if trial.suggest_categorical("activation", ["relu", "tanh"]) == "relu":
        trial.suggest_float("mult", 1, 2)
    trial.suggest_float("width", 10, 20)
    trial.suggest_float("height", 10, 100)
    return {"steps": 3}


def test_optuna_define_by_run(tmp_path: Path) -> None:
    optuna = pytest.importorskip("holdfast.tune.search.optuna")
    algorithm = ConcurrencyLimiter(
        optuna.OptunaSearch(space=define_by_run, metric="mean_loss", mode="min", seed=3), max_concurrent=2
    )
    config = searched(search_alg=algorithm, scheduler=AsyncHyperBandScheduler(), num_samples=6)
    grid = tune.Tuner(steps, tune_config=config, run_config=run(tmp_path)).fit()
    assert not grid.errors
    configs = [result.config for result in grid]
    assert {config["activation"] for config in configs} == {"relu", "tanh"}
    assert all(("mult" in config) == (config["activation"] == "relu") for config in configs)
    assert all(config["steps"] == 3 for config in configs)
    assert max(result.metrics["training_iteration"] for result in grid) == 3


def two_metrics(config: dict[str, Any]) -> None:
    for step in range(3):
        tune.report({"loss": config["width"] * (step + 1), "gain": os.getpid() * 0 + config["width"] ** 2})


def test_optuna_with_several_objectives(tmp_path: Path) -> None:
    optuna = pytest.importorskip("holdfast.tune.search.optuna")
    algorithm = optuna.OptunaSearch(metric=["loss", "gain"], mode=["min", "max"], seed=3)
    config = tune.TuneConfig(search_alg=ConcurrencyLimiter(algorithm, max_concurrent=2), num_samples=5)
    space = {"width": tune.uniform(0, 20), "height": tune.uniform(-100, 100)}
    grid = tune.Tuner(two_metrics, param_space=space, tune_config=config, run_config=run(tmp_path)).fit()
    assert not grid.errors
    best = grid.get_best_result("loss", "min"), grid.get_best_result("gain", "max")
    widths = [result.config["width"] for result in grid]
    assert [result.config["width"] for result in best] == [min(widths), max(widths)]
