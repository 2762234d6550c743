"""Each run and each experiment has an id of its own, made once, whoever drives it later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.runs.stored_run import StoredRun
from holdfast.store import runfile
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location


def run(storage: Path | str, name: str = "run") -> str:
    config = train.RunConfig(name=name, storage_path=str(storage), verbose=0)
    scaling = train.ScalingConfig(num_workers=0)
    train.DataParallelTrainer(lambda: train.report({"a": 1}), scaling_config=scaling, run_config=config).fit()
    return id_in(f"{storage}/{name}")


def id_in(run: str) -> str:
    found: Any = StoredRun(Location.parse("run", run)).identity()["id"]
    assert isinstance(found, str)
    assert len(found) == 32
    return found


def without_id(storage: Path) -> None:
    """As an older version wrote it."""
    layout = RunLayout(storage / "run")
    runfile.write(layout, Disk(), {name: value for name, value in runfile.read(layout).items() if name != "id"})


@pytest.mark.parametrize("remote", [False, True])
def test_a_run_keeps_its_id(remote: bool, bucket: str, tmp_path: Path) -> None:
    storage = bucket if remote else tmp_path
    first = run(storage)
    assert run(storage) == first
    assert run(storage, "other") != first


def test_a_run_keeps_its_id_when_its_file_is_lost(tmp_path: Path) -> None:
    first = run(tmp_path)
    RunLayout(tmp_path / "run").run_file.unlink()
    assert run(tmp_path) == first


def test_a_run_of_an_older_version_gets_one(tmp_path: Path) -> None:
    run(tmp_path)
    without_id(tmp_path)
    first = run(tmp_path)
    assert run(tmp_path) == first


def test_an_experiment_keeps_its_id(tmp_path: Path) -> None:
    def fit(name: str) -> str:
        config = tune.RunConfig(name=name, storage_path=str(tmp_path), verbose=0)
        tune.Tuner(trial, run_config=config).fit()
        return id_in(f"{tmp_path}/{name}")

    first = fit("one")
    tune.Tuner.restore(str(tmp_path / "one"), trial).fit()
    assert id_in(f"{tmp_path}/one") == first
    assert fit("two") != first


def trial(_config: dict[str, Any]) -> None:
    tune.report({"a": 1})
