"""Trainables in the trials of a real experiment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
import holdfast.train as train
from holdfast import tune
from holdfast.tune.trainable import TuneReportCallback


class Walker(tune.Trainable):
    def setup(self, config: dict[str, Any], stride: Any = None) -> None:
        self.at, self.stride = 0.0, float(stride.sum()) * config["factor"]

    def step(self) -> dict[str, Any]:
        self.at += self.stride
        return {"at": self.at}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"at": self.at}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.at = checkpoint["at"]

    def cleanup(self) -> None:
        Path(self.config["notes"], f"{self.trial_id}-{self.iteration}").touch()


def experiment(storage: Path, trainable: Any, space: dict[str, Any], **run: Any) -> Any:
    options = {"name": "experiment", "storage_path": str(storage), "verbose": 0, **run}
    return tune.Tuner(trainable, param_space=space, run_config=tune.RunConfig(**options)).fit()


def test_a_class_is_stopped_in_its_report_and_cleans_up(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    trainable = tune.with_resources(tune.with_parameters(Walker, stride=np.ones(2)), {"cpu": 0.5})
    space = {"factor": tune.grid_search([1, 2]), "notes": str(notes)}
    results = experiment(tmp_path, trainable, space, stop={"training_iteration": 3})
    assert sorted(result.metrics["at"] for result in results) == [6.0, 12.0]
    assert not results.errors
    assert sorted(os.listdir(notes)) == sorted(f"{result.metrics['trial_id']}-3" for result in results)


def uses_model(config: dict[str, Any]) -> dict[str, Any]:
    return {"model": str(holdfast.get(config["model_ref"])["name"])}


def test_a_space_of_references(tmp_path: Path) -> None:
    models = [holdfast.put({"name": name, "weights": np.zeros(1000)}) for name in ("one", "two")]  # type: ignore[operator]
    results = experiment(tmp_path, uses_model, {"model_ref": tune.grid_search(models)})
    assert sorted(result.metrics["model"] for result in results) == ["one", "two"]


def inner_loop(config: dict[str, Any]) -> None:
    for step in range(1, config.get("steps", 1000) + 1):
        train.report({"step": step, "lr": config["lr"], "world": train.get_context().get_world_size()})


def test_a_trainer_as_the_trainable(tmp_path: Path) -> None:
    trainer = train.DataParallelTrainer(
        inner_loop, train_loop_config={"steps": 2}, scaling_config=train.ScalingConfig(num_workers=2)
    )
    results = experiment(tmp_path, trainer, {"train_loop_config": {"lr": tune.grid_search([0.1, 0.2])}})
    assert sorted(result.metrics["lr"] for result in results) == [0.1, 0.2]
    assert {(result.metrics["step"], result.metrics["world"]) for result in results} == {(2, 2)}


def with_inner_trainer(config: dict[str, Any]) -> None:
    """Ends only when it is stopped, and notes how."""
    run_config = train.RunConfig(
        name="inner", storage_path=config["notes"], verbose=0, callbacks=[TuneReportCallback()]
    )
    try:
        train.DataParallelTrainer(inner_loop, train_loop_config={"lr": 0.1}, run_config=run_config).fit()
    finally:
        Path(config["notes"], "ended").write_text(repr(sys.exc_info()[1]))


def test_a_trial_with_a_trainer_inside_is_stopped_in_its_report(tmp_path: Path) -> None:
    """It ends by the SIGTERM; were it killed, it could note nothing."""
    results = experiment(tmp_path, with_inner_trainer, {"notes": str(tmp_path / "notes")}, stop={"step": 3})
    assert results[0].metrics["step"] == 3
    assert (tmp_path / "notes" / "ended").read_text() == "SystemExit(143)"


def test_a_wrong_return_fails_its_trial_and_no_other(tmp_path: Path) -> None:
    def some_wrong(config: dict[str, Any]) -> Any:
        return "wrong" if config["n"] else {"x": 1}

    results = experiment(tmp_path, some_wrong, {"n": tune.grid_search([0, 1])})
    assert [str(error).count("return or yield a dict") > 0 for error in results.errors] == [True]
    assert [result.metrics["x"] for result in results if not result.error] == [1]


def test_what_cannot_be_a_trainable_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing a required argument: 'more'"):
        experiment(tmp_path, lambda _config, *, more: more, {})
