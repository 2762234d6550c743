"""Checkpoints that a function of the user's uploads, or that lie in the run's storage already."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.train import Checkpoint, CheckpointUploadMode

IN_TIME_S = 30.0


def fit(
    fn: Callable[..., None], storage: Path, workers: int = 1, keep: int | None = None, **options: Any
) -> train.Result:
    run = train.RunConfig(
        name="run",
        storage_path=str(storage),
        verbose=0,
        checkpoint_config=train.CheckpointConfig(num_to_keep=keep),
        **options,
    )
    scaling = train.ScalingConfig(num_workers=workers)
    return train.DataParallelTrainer(fn, scaling_config=scaling, run_config=run).fit()


def in_run(name: str) -> Path:
    return Path(train.get_context().get_storage().experiment_fs_path, name)


def steps_of(result: train.Result) -> list[int]:
    return [json.loads(Path(checkpoint.path, "step").read_text()) for checkpoint, _ in result.best_checkpoints]


def save_slowly(place: Path, step: int) -> threading.Thread:
    """As torch.distributed.checkpoint.async_save does: the directory comes to be while training continues."""

    def work() -> None:
        time.sleep(0.2)
        place.mkdir(parents=True)
        (place / "step").write_text(str(step))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_an_upload_runs_behind_the_loop_and_reports_stay_in_order(tmp_path: Path) -> None:
    def fn() -> None:
        uploading, may_end = threading.Event(), threading.Event()

        def upload(checkpoint: Checkpoint, _name: str) -> Checkpoint:
            uploading.set()
            assert may_end.wait(IN_TIME_S)
            return checkpoint

        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text("1")
            train.report({"step": 1}, Checkpoint(directory), checkpoint_upload_fn=upload)
        train.report({"step": 2})
        assert uploading.wait(IN_TIME_S)  # and both reports have returned
        may_end.set()
        assert [c.metrics for c in train.get_all_reported_checkpoints()] == [{"step": 1}]

    result = fit(fn, tmp_path)
    assert [row["step"] for row in result.metrics_dataframe.to_dict("records")] == [1, 2]
    assert steps_of(result) == [1]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_checkpoint_need_not_exist_before_its_upload(tmp_path: Path, workers: int) -> None:
    """All ranks report one directory, as with torch's distributed checkpoints, also the last before they return."""

    def fn() -> None:
        for step in range(1, 4):
            place = in_run(f"mine-{step}")
            saving = save_slowly(place, step) if train.get_context().get_world_rank() == 0 else None

            def upload(checkpoint: Checkpoint, name: str, place: Path = place, saving: Any = saving) -> Checkpoint:
                deadline = time.monotonic() + IN_TIME_S
                while not (place / "step").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                if saving:
                    saving.join()
                assert name == f"epoch-{place.name[-1]}"
                return checkpoint

            train.report({"step": step}, Checkpoint(place), f"epoch-{step}", checkpoint_upload_fn=upload)

    result = fit(fn, tmp_path, workers, keep=2)
    assert steps_of(result) == [2, 3]
    assert not list((tmp_path / "run").glob("mine-*")), "what num_to_keep removes is not left where it was saved"


def test_names_of_uploads_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    def fn() -> None:
        def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
            (tmp_path / f"{name}.{train.get_context().get_world_rank()}").touch()
            return checkpoint

        for step in range(2):
            with tempfile.TemporaryDirectory() as directory:
                Path(directory, "step").write_text("0")
                mode = CheckpointUploadMode.SYNC
                checkpoint = Checkpoint(directory)
                train.report({"n": step}, checkpoint, checkpoint_upload_mode=mode, checkpoint_upload_fn=upload)

    fit(fn, tmp_path / "runs", workers=2)
    ranks = {path.suffix: path.stem for path in sorted(tmp_path.glob("checkpoint_*"))}
    names = {path.stem for path in tmp_path.glob("checkpoint_*")}
    assert set(ranks) == {".0", ".1"}
    assert len(names) == 2


def test_a_failed_upload_fails_the_worker_while_it_trains(tmp_path: Path) -> None:
    def fn() -> None:
        def upload(_checkpoint: Checkpoint, _name: str) -> Checkpoint:
            raise ConnectionError("no way to the bucket")

        train.report({}, Checkpoint(tmp_path / "none"), checkpoint_upload_fn=upload)
        time.sleep(IN_TIME_S)

    with pytest.raises(train.WorkerGroupError, match="no way to the bucket"):
        fit(fn, tmp_path)


def test_no_upload_takes_over_what_lies_in_the_run(tmp_path: Path) -> None:
    def fn() -> None:
        rank = train.get_context().get_world_rank()
        for step in range(1, 4):
            place = in_run(f"mine-{step}")
            place.mkdir(exist_ok=True)
            (place / f"rank-{rank}").write_text(str(step))
            if rank == 0:
                (place / "step").write_text(str(step))
            train.report({"step": step}, Checkpoint(place), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
            newest = train.get_checkpoint()
            assert newest is not None
            assert Path(newest.path, f"rank-{rank}").read_text() == str(step)

    result = fit(fn, tmp_path, workers=2, keep=2)
    assert steps_of(result) == [2, 3]
    assert sorted(os.listdir(result.best_checkpoints[0][0].path)) == ["rank-0", "rank-1", "step"]
    assert not list((tmp_path / "run").glob("mine-*"))


def test_no_upload_outside_of_the_run_is_refused(tmp_path: Path) -> None:
    def fn() -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "step").write_text("1")
        with pytest.raises(ValueError, match="belong below"):
            train.report({}, Checkpoint(tmp_path / "mine"), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)

    assert fit(fn, tmp_path / "runs").best_checkpoints == []


def test_the_directory_of_a_checkpoint_goes_if_that_is_asked_for(tmp_path: Path) -> None:
    def fn() -> None:
        for number, delete in enumerate((True, False)):
            mine = tmp_path / f"mine-{delete}"
            mine.mkdir()
            (mine / "step").write_text(str(number))
            train.report({}, Checkpoint(mine), delete_local_checkpoint_after_upload=delete)

    assert steps_of(fit(fn, tmp_path / "runs")) == [0, 1]
    assert [path.name for path in tmp_path.glob("mine-*")] == ["mine-False"]
