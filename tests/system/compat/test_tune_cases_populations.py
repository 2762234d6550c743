"""What Ray's own tests expect of population-based training to its end: who waits for whom, and what is continued.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import tune
from holdfast.tune.schedulers import PopulationBasedTraining

IN_TIME_S = 60.0
STEPS = 3


def population(**more: Any) -> PopulationBasedTraining:
    return PopulationBasedTraining(
        time_attr="training_iteration",
        metric="mean_accuracy",
        mode="max",
        **{"perturbation_interval": 1, "hyperparam_mutations": {"c": lambda: 1}, "log_config": True, **more},
    )


def waits_for_the_others(config: dict[str, Any]) -> None:
    """Without ``synch`` the best trial makes its first step when all others have ended."""
    wanted = config.get("others", 0)
    deadline = time.monotonic() + IN_TIME_S
    while wanted and len(list(Path(config["ended"]).iterdir())) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def counts_up(config: dict[str, Any]) -> None:
    step, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            step = json.loads(Path(directory, "step").read_text())
    if config["a"] == config.get("best"):
        waits_for_the_others(config)
    while step < STEPS:
        step += 1
        if step == STEPS and "ended" in config:
            Path(config["ended"], tune.get_context().get_trial_id()).touch()
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(json.dumps(step))
            checkpoint = tune.Checkpoint.from_directory(directory)
            tune.report({"mean_accuracy": step + config["a"]}, checkpoint=checkpoint)


def scores(tmp_path: Path, scheduler: PopulationBasedTraining, values: list[int], **config: Any) -> set[float]:
    analysis = tune.run(
        counts_up,
        name="population",
        storage_path=str(tmp_path),
        config={"a": tune.grid_search(values), "c": 1, **config},
        scheduler=scheduler,
        stop={"training_iteration": STEPS},
        fail_fast=True,
        verbose=0,
    )
    return set(analysis.dataframe(metric="mean_accuracy", mode="max")["mean_accuracy"])


@pytest.mark.soak
@pytest.mark.parametrize(("values", "best"), [([10, 20, 40], 43), ([30, 20, 10], 33)], ids=["best last", "best first"])
def test_those_that_wait_for_each_other_all_become_the_best(tmp_path: Path, values: list[int], best: int) -> None:
    assert scores(tmp_path, population(synch=True), values) == {best}


@pytest.mark.soak
def test_those_that_do_not_wait_may_end_before_the_best(tmp_path: Path) -> None:
    (tmp_path / "ended").mkdir()
    holdfast.init(num_cpus=2)
    try:
        found = scores(tmp_path / "runs", population(), [40, 10, 20], best=40, others=2, ended=str(tmp_path / "ended"))
    finally:
        holdfast.shutdown()
    assert found != {43}


class Saves(tune.Trainable):
    """The worse one saves slowly; it is stopped, to take over from the other one, while it saves."""

    def setup(self, config: dict[str, Any]) -> None:
        self.config = config
        self.a = config["a"]

    def step(self) -> dict[str, Any]:
        return {"mean_accuracy": self.config["score"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "a").write_text(json.dumps(self.a))
        time.sleep(0.0 if self.config["score"] else 1.0)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.a = json.loads(Path(checkpoint, "a").read_text())


@pytest.mark.soak
def test_a_trial_takes_over_from_another_while_it_saves(tmp_path: Path) -> None:
    scheduler = population(synch=True, perturbation_interval=2, hyperparam_mutations={"a": tune.uniform(0, 1)})
    tuner = tune.Tuner(
        Saves,
        param_space={"a": tune.uniform(0, 1), "score": tune.grid_search([0, 1])},
        tune_config=tune.TuneConfig(scheduler=scheduler),
        run_config=tune.RunConfig(
            name="population",
            storage_path=str(tmp_path),
            verbose=0,
            stop={"training_iteration": 5},
            failure_config=tune.FailureConfig(fail_fast=True),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2),
        ),
    )
    assert [result.metrics["training_iteration"] for result in tuner.fit()] == [5, 5]


@pytest.mark.soak
def test_a_population_draws_what_the_space_does_not_have(tmp_path: Path) -> None:
    def trains(config: dict[str, Any]) -> None:
        for _ in range(STEPS):
            tune.report({"mean_accuracy": config["a"] * config["b"] * (config["c"]["c1"] + config["c"]["c2"])})

    nested = {"c1": lambda: np.random.uniform(0.5), "c2": tune.choice([2, 3, 4])}
    mutations = {"a": tune.uniform(0, 0.3), "b": [1, 2, 3], "c": nested}
    analysis = tune.run(
        trains,
        name="population",
        storage_path=str(tmp_path),
        num_samples=4,
        scheduler=population(hyperparam_mutations=mutations),
        stop={"training_iteration": STEPS},
        fail_fast=True,
        verbose=0,
    )
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [STEPS] * 4


class Falls(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.state = [config["a"], config["b"], 0]

    def step(self) -> dict[str, Any]:
        self.state[2] += 1
        a, b, step = self.state
        return {"mean_accuracy": (a - step) * b}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state").write_text(json.dumps(self.state))

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.state = json.loads(Path(checkpoint, "state").read_text())


class FewFiles(tune.Callback):
    def __init__(self) -> None:
        self.most = 0

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        targets = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        files = [target for target in targets if target.exists() and target.resolve().is_file()]
        self.most = max(self.most, len(files))


@pytest.mark.soak
def test_a_population_continues_from_checkpoints_that_are_kept(tmp_path: Path) -> None:
    files = FewFiles()
    spaces = [{"a": a, "b": b, "c": 1} for a, b in zip((10, 20, 30, 40), (1.2, 0.9, 1.1, 0.8), strict=True)]
    keep = tune.CheckpointConfig(
        num_to_keep=2,
        checkpoint_score_attribute="training_iteration",
        checkpoint_score_order="min",
        checkpoint_frequency=1,
        checkpoint_at_end=True,
    )
    analysis = tune.run(
        Falls,
        name="population",
        storage_path=str(tmp_path),
        config={"a": tune.choice([10, 20, 30, 40]), "b": tune.uniform(0.5, 1.5), "c": 1},
        search_alg=tune.search.BasicVariantGenerator(points_to_evaluate=spaces),
        num_samples=4,
        checkpoint_config=keep,
        scheduler=population(),
        stop={"training_iteration": STEPS},
        fail_fast=True,
        callbacks=[files],
        verbose=0,
    )
    assert [trial.last_result["training_iteration"] for trial in analysis.trials] == [STEPS] * 4
    assert 0 < files.most < 40
