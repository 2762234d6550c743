"""Datasets in ``param_space``: guide 002's script, killed and restored; nested, in grids and choices; and Ray's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast.data
from holdfast import train, tune
from support.elastic.elastic_job import wait_until
from support.repository import SUPPORT

SCRIPT = SUPPORT / "data" / "tuned_data.py"
ENDS_WITHIN_S = 120.0


def started(storage: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), str(storage), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.timeout(300)
def test_guide_002_killed_and_restored(tmp_path: Path) -> None:
    first = started(tmp_path, "fit")
    try:
        wait_until(
            lambda: len(list(tmp_path.glob("tuned/*/checkpoints/checkpoint_000004.json"))) >= 2,
            "checkpoints of two trials",
        )
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate(timeout=ENDS_WITHIN_S)
    (tmp_path / "go").touch()
    second = started(tmp_path, "restore")
    said, _ = second.communicate(timeout=ENDS_WITHIN_S)
    assert second.returncode == 0, said
    assert json.loads(said.splitlines()[-1]) == [[2 * sum(range(128)), 8], [3 * sum(range(128)), 8]], said


def sums(config: dict[str, Any]) -> None:
    data = config["nested"][0]["data"]
    tune.report({"sum": data.sum("id"), "kind": type(data).__name__})


def with_data(config: dict[str, Any], data: Any) -> None: ...


def run_config(tmp_path: Path, **options: Any) -> tune.RunConfig:
    return tune.RunConfig(name="tuned", storage_path=str(tmp_path), verbose=0, **options)


def test_nested_in_choices_and_stale_after_a_restore(tmp_path: Path) -> None:
    data = [holdfast.data.range(10), holdfast.data.range(20).map(lambda row: {"id": 2 * row["id"]})]
    space = {"nested": [{"data": tune.grid_search(data)}], "other": tune.choice([holdfast.data.range(3)]), "lr": 0.1}
    grid = tune.Tuner(sums, param_space=space, run_config=run_config(tmp_path)).fit()
    assert sorted(result.metrics["sum"] for result in grid) == [45, 380], grid.errors
    path = str(tmp_path / "tuned")
    with pytest.raises(ValueError, match=r"param_space=.*pass it again"):
        tune.Tuner.restore(path, trainable=sums)
    with pytest.raises(ValueError, match="missing: other"):
        tune.Tuner.restore(path, trainable=sums, param_space={"nested": space["nested"], "lr": 0.1})
    assert len(tune.Tuner.restore(path, trainable=sums, param_space=space).fit()) == 2


@pytest.mark.filterwarnings("ignore")
def test_datasets_of_ray_are_refused_before_a_trial_starts(tmp_path: Path) -> None:
    import ray.data

    theirs = ray.data.Dataset.__new__(ray.data.Dataset)  # to make a real one would start a cluster
    space = {"nested": [{"data": tune.grid_search([theirs])}]}
    with pytest.raises(ValueError, match=r"nested/0/data/grid_search/0.*engine=\"ray\".*holdfast\.data"):
        tune.Tuner(sums, param_space=space, run_config=run_config(tmp_path)).fit()
    with pytest.raises(ValueError, match=r"^data .*engine=\"ray\""):
        tune.Tuner(tune.with_parameters(with_data, data=theirs), run_config=run_config(tmp_path)).fit()
    assert not (tmp_path / "tuned").exists()
    trainer = train.DataParallelTrainer(sums, datasets={"train": theirs})
    with pytest.raises(ValueError, match=r"datasets.*train.*holdfast\.data"):
        tune.Tuner(trainer, run_config=run_config(tmp_path)).fit()
