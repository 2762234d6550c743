"""What ``restore`` brings back of a run, what it asks for again, and what is no run at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.errors import NotARunError
from holdfast.train import RunConfig

Trainer = train.DataParallelTrainer
HERE = train.ScalingConfig(num_workers=0)


def report_once(config: dict[str, Any]) -> None:
    tune.report({"a": config["i"]})


def train_fn() -> None:
    train.report({"y": 0})


def test_an_experiment_is_not_overwritten_by_a_run_of_its_name(tmp_path: Path) -> None:
    run = RunConfig(storage_path=tmp_path, name="same", verbose=0)
    assert len(tune.Tuner(report_once, param_space={"i": 1}, run_config=run).fit()) == 1
    path = tmp_path / "same"
    files = {file: file.read_bytes() for file in path.rglob("*.json") if file.name != "lease.json"}
    with pytest.raises(NotARunError, match=r"is an experiment of a Tuner.* give another RunConfig\(name="):
        Trainer(train_fn, scaling_config=HERE, run_config=run).fit()
    assert {file: file.read_bytes() for file in path.rglob("*.json") if file.name != "lease.json"} == files
    path.joinpath("run.json").write_bytes(b"damaged")
    with pytest.raises(NotARunError, match="is an experiment of a Tuner"):
        Trainer(train_fn, scaling_config=HERE, run_config=run).fit()
    assert not Trainer.can_restore(path)
    with pytest.raises(NotARunError, match=r"not a training run: use Tuner\.restore"):
        Trainer.restore(path, train_fn)
    assert tune.Tuner.can_restore(path)
    assert tune.Tuner.restore(path, report_once).fit()[0].metrics["a"] == 1
