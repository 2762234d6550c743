"""A run whose storage is a file system that its user has configured: a store of obstore's, and one of fsspec's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec.asyn
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

import holdfast.train as train
import holdfast.tune as tune
from support.object_stores.remote_job import expected, load, train_fn, trainer
from support.object_stores.servers import S3Server


@pytest.fixture(scope="module", autouse=True)
def fsspec_is_running() -> None:
    """Its thread lives as long as the process, and is not what a test leaves behind."""
    fsspec.asyn.get_loop()


@pytest.fixture(params=["obstore", "fsspec"])
def filesystem(request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path) -> Any:
    """No variable of the environment tells where it is. fsspec's does not create safely, so opening takes a while."""
    if request.param == "obstore":
        return s3.store(s3.make_bucket())
    return DirFileSystem(str(tmp_path / "far"), fsspec.filesystem("file", auto_mkdir=True))


def test_a_run_is_trained_with_a_killed_worker_and_restored(
    filesystem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    marks = tmp_path / "marks"
    marks.mkdir()
    config = {"steps": 4, "marks": str(marks), "blows": [{"what": "worker", "step": 2, "rank": 1}], "max_failures": 1}
    result = trainer("runs", "run", config, storage_filesystem=filesystem).fit()
    assert state_of(result) == (expected(4), 4)
    assert result.checkpoint is not None
    assert result.checkpoint.filesystem is filesystem

    assert train.DataParallelTrainer.can_restore("runs/run", storage_filesystem=filesystem)
    assert not train.DataParallelTrainer.can_restore("runs/other", storage_filesystem=filesystem)
    config = {"steps": 6, "marks": str(marks), "driver": os.getpid()}
    restored = train.DataParallelTrainer.restore(
        "runs/run", train_fn, train_loop_config=config, storage_filesystem=filesystem
    )
    assert state_of(restored.fit()) == (expected(6), 6)
    assert state_of(train.Result.from_path("runs/run", storage_filesystem=filesystem)) == (expected(6), 6)


def state_of(result: train.Result) -> tuple[str, int]:
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        return load(Path(directory))


@pytest.mark.soak
def test_trials_run_on_a_filesystem_of_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of its type is a word without a meaning in a URL."""
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    (tmp_path / "far" / "runs").mkdir(parents=True)
    given = SubTreeFileSystem(str(tmp_path / "far"), LocalFileSystem())

    def loss(config: dict[str, Any]) -> None:
        tune.report({"loss": config["x"]})

    run_config = tune.RunConfig(name="run", storage_path="runs", storage_filesystem=given)
    results = tune.Tuner(loss, param_space={"x": tune.grid_search([1, 2])}, run_config=run_config).fit()
    assert not results.errors
    assert sorted(result.metrics["loss"] for result in results) == [1, 2]
