"""Training with its storage on a real S3 server: what a user sees of it, and what faults leave of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.train as train
from holdfast.errors import ControllerError, RunInUseError, StorageDeniedError
from holdfast.store.location import Location
from holdfast.store.remote import remote_journal
from support.object_stores.proxy import Fault, FaultProxy, RequestClass
from support.object_stores.remote_job import expected, load, run_job, save, train_fn, trainer

ENDS_WITHIN_S = 120.0


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "tiny"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a file system of 4 MB can only be mounted by root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def notes(marks: str, kind: str) -> list[list[str]]:
    lines = (line.split() for line in Path(marks, "notes").read_text().splitlines())
    return [line[1:] for line in lines if line[0] == kind]


def starts(marks: str) -> list[int]:
    return [int(step) for rank, step in notes(marks, "start") if rank == "0"]


def state_of(result: train.Result) -> tuple[str, int]:
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        return load(Path(directory))


def test_a_run_on_s3_is_what_one_on_disk_is(bucket: str, marks: str, tmp_path: Path) -> None:
    result = trainer(bucket, "run", {"steps": 5, "marks": marks, "keep": 2}).fit()
    assert state_of(result) == (expected(5), 5)
    assert result.path == f"{bucket}/run"
    assert [row["step"] for row in result.metrics_dataframe.to_dict("records")] == [1, 2, 3, 4, 5]
    again = train.Result.from_path(f"{bucket}/run")
    assert again.metrics == {"step": 5}
    assert state_of(again) == (expected(5), 5)
    assert len(again.best_checkpoints) == 2
    assert [*(tmp_path / "scratch").rglob("*")] == [tmp_path / "scratch" / f"holdfast-{os.geteuid()}"], "files are left"


def test_a_run_is_restored_by_its_url(bucket: str, marks: str) -> None:
    trainer(bucket, "run", {"steps": 3, "marks": marks}).fit()
    assert train.DataParallelTrainer.can_restore(f"{bucket}/run")
    assert not train.DataParallelTrainer.can_restore(f"{bucket}/other")
    restored = train.DataParallelTrainer.restore(
        f"{bucket}/run", train_fn, train_loop_config={"steps": 6, "marks": marks, "driver": os.getpid()}
    )
    assert state_of(restored.fit()) == (expected(6), 6)
    assert starts(marks) == [0, 3]


def test_a_killed_worker_is_replaced_without_a_download(bucket: str, proxy: FaultProxy, marks: str) -> None:
    blows = [{"what": "worker", "step": 4, "rank": 1}]
    result = trainer(bucket, "run", {"steps": 8, "marks": marks, "blows": blows, "max_failures": 1}).fit()
    assert result.return_value == expected(8)
    assert starts(marks) == [0, 4]
    assert proxy.requests["download"] == 0


def test_checkpoints_keep_their_metrics_while_the_journal_is_slow(bucket: str, proxy: FaultProxy, marks: str) -> None:
    proxy.arm("journal", Fault("503", skip=3, seconds=1.0))  # from about the first commit on
    result = trainer(bucket, "run", {"steps": 5, "marks": marks, "pace_s": 0.1}).fit()
    assert proxy.strikes["journal", "503"] > 0
    assert [metrics for _, metrics in result.best_checkpoints] == [{"step": step} for step in range(1, 6)]


def test_what_a_killed_worker_had_staged_gets_to_storage(bucket: str, proxy: FaultProxy, marks: str) -> None:
    proxy.arm("upload", Fault("503", seconds=1.0))
    with pytest.raises(train.TrainingFailedError, match="SIGKILL"):
        trainer(bucket, "run", {"steps": 8, "marks": marks, "blows": [{"what": "worker", "step": 4}]}).fit()
    assert proxy.strikes["upload", "503"] > 0
    assert state_of(train.Result.from_path(f"{bucket}/run")) == (expected(4), 4)


def test_what_a_killed_driver_had_on_its_node_is_not_lost(
    bucket: str, proxy: FaultProxy, marks: str, tmp_path: Path
) -> None:
    """Nothing gets to storage before the driver dies, and still its successor resumes from the last report."""
    proxy.arm("upload", Fault("503", seconds=3.0))
    gathered = str(tmp_path / "scratch" / "**" / "checkpoint_000005.json")
    config = {"steps": 8, "marks": marks, "blows": [{"what": "driver", "step": 5, "rank": 0, "await": gathered}]}
    assert run_job(bucket, config).returncode == -signal.SIGKILL
    done = run_job(bucket, config)
    assert done.stdout.split()[-1:] == [expected(8)], done.stderr
    assert proxy.strikes["upload", "503"] > 0
    assert starts(marks) == [0, 5]


def test_a_lost_node_means_a_download_that_is_verified(
    bucket: str, proxy: FaultProxy, marks: str, tmp_path: Path
) -> None:
    blows = [{"what": "driver", "step": 4, "rank": 0, "durable": True}]
    config = {"steps": 6, "marks": marks, "blows": blows}
    assert run_job(bucket, config).returncode == -signal.SIGKILL
    shutil.rmtree(tmp_path / "scratch")
    proxy.arm("download", Fault("bit flip"))
    done = run_job(bucket, config)
    assert done.stdout.split()[-1:] == [expected(6)], done.stderr
    assert proxy.strikes["download", "bit flip"] == 1
    assert starts(marks) == [0, 4], "a bit that flipped on the way is no damage in storage"


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(bucket: str, marks: str) -> None:
    trainer(bucket, "run", {"steps": 4, "marks": marks}).fit()
    objects = Location.parse("run", f"{bucket}/run").open(10)
    key = "checkpoints/checkpoint_000004/rank-1.bin"
    data = bytearray(objects.get(key))
    data[len(data) // 2] ^= 1
    objects.put(key, bytes(data))
    result = trainer(bucket, "run", {"steps": 6, "marks": marks}).fit()
    assert state_of(result) == (expected(6), 6)
    assert starts(marks) == [0, 3]
    assert "checkpoint_000004" not in {checkpoint.path.rpartition("/")[2] for checkpoint, _ in result.best_checkpoints}


def test_when_storage_stays_away_the_run_ends_with_a_clear_error_and_nothing_is_lost(
    bucket: str, proxy: FaultProxy, marks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_PATIENCE_S", "1")
    proxy.arm("upload", Fault("503", skip=2, seconds=6.0))
    with pytest.raises(ControllerError, match=r"(?s)could not be stored.*503.*run the same command|restore"):
        trainer(bucket, "run", {"steps": 400, "marks": marks, "pace_s": 0.02}).fit()
    last = min(max(int(step) for r, step, _ in notes(marks, "report") if r == rank) for rank in ("0", "1"))
    assert last > 3, "training continues while uploads lag"
    monkeypatch.setenv("HOLDFAST_STORAGE_PATIENCE_S", "30")
    result = trainer(bucket, "run", {"steps": last + 5, "marks": marks}).fit()
    assert state_of(result) == (expected(last + 5), last + 5)
    assert starts(marks)[-1] >= last - 1, "what was whole on the node was not taken up again"


@pytest.mark.parametrize("requests", ["upload", "commit", "journal"])
def test_credentials_that_expire_and_are_renewed_are_not_noticed(
    requests: RequestClass, bucket: str, proxy: FaultProxy, marks: str
) -> None:
    proxy.arm(requests, Fault("expired", skip=3, seconds=0.5))
    result = trainer(bucket, "run", {"steps": 6, "marks": marks}).fit()
    assert state_of(result) == (expected(6), 6)
    assert proxy.strikes[requests, "expired"]
    assert starts(marks) == [0]


def test_credentials_that_stay_expired_end_the_run_with_what_to_check(
    bucket: str, proxy: FaultProxy, marks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_PATIENCE_S", "0.5")
    proxy.arm("upload", Fault("expired", skip=6, seconds=3600))
    with pytest.raises(ControllerError, match=r"(?s)ExpiredToken.*Check the credentials"):
        trainer(bucket, "run", {"steps": 400, "marks": marks, "pace_s": 0.02}).fit()
    proxy.disarm()
    last = max(int(step) for _, step, _ in notes(marks, "report"))
    result = trainer(bucket, "run", {"steps": last + 2, "marks": marks}).fit()
    assert state_of(result) == (expected(last + 2), last + 2)
    assert starts(marks)[-1] >= 2, "what was stored was not taken up again"


def test_a_full_disk_while_staging_is_a_clear_error_and_hurts_nothing(
    bucket: str, marks: str, tiny_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The node has room for some small checkpoints, and then comes a large one."""
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tiny_disk))
    assert state_of(trainer(bucket, "run", {"steps": 2, "marks": marks, "size": 100_000}).fit())[1] == 2
    with pytest.raises((ControllerError, train.TrainingFailedError), match=r"[Nn]o space"):
        trainer(bucket, "run", {"steps": 4, "marks": marks, "size": 6_000_000}).fit()
    assert state_of(train.Result.from_path(f"{bucket}/run")) == (expected(2), 2)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    assert state_of(trainer(bucket, "run", {"steps": 4, "marks": marks, "size": 6_000_000}).fit()) == (expected(4), 4)
    assert starts(marks)[-1] == 2


def test_reports_wait_when_storage_is_too_far_behind(
    bucket: str, proxy: FaultProxy, marks: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_STAGING_LIMIT_GB", "0.001")
    proxy.arm("upload", Fault("503", times=24))
    result = trainer(bucket, "run", {"steps": 8, "marks": marks, "size": 400_000, "verbose": 1}).fit()
    assert state_of(result) == (expected(8), 8)
    records = remote_journal.read(Location.parse("run", f"{bucket}/run").open(10))[0]
    stalled = [record.body["stalled"] for record in records if record.kind == "StorageLags"]
    assert stalled[0] is True, "no report had to wait"
    assert stalled[-1] is False
    shown = "".join(capfd.readouterr())
    assert re.search(r"training waits for storage to catch up: \d+ checkpoints?, \S+ GB, the oldest for", shown)


def test_uploads_wait_for_the_sync_period_but_not_beyond_the_end(bucket: str, proxy: FaultProxy, marks: str) -> None:
    config = {"steps": 12, "marks": marks, "keep": 2}
    result = trainer(bucket, "run", config, sync_config=train.SyncConfig(sync_period=3600)).fit()
    assert state_of(result) == (expected(12), 12)
    assert len(result.best_checkpoints) == 2
    assert 2 <= proxy.requests["commit"] <= 4, "superseded checkpoints were uploaded"


def test_a_sync_report_returns_when_its_checkpoint_is_durable(bucket: str, proxy: FaultProxy, marks: str) -> None:
    proxy.arm("commit", Fault("503", seconds=0.8))
    config = {"steps": 2, "marks": marks, "mode": "SYNC"}
    run = trainer(bucket, "run", config, sync_config=train.SyncConfig(sync_period=3600))
    assert state_of(run.fit()) == (expected(2), 2)
    assert proxy.strikes["commit", "503"] > 0
    assert len(notes(marks, "report")) == 4


def test_a_graceful_stop_makes_durable_what_is_staged(bucket: str, proxy: FaultProxy, marks: str) -> None:
    proxy.arm("upload", Fault("503", seconds=1.0))
    blows = [{"what": "driver", "step": 5, "rank": 0, "signal": "SIGTERM"}]
    config = {"steps": 1000, "marks": marks, "blows": blows, "pace_s": 0.05}
    assert run_job(bucket, config).returncode == 128 + signal.SIGTERM
    stored = train.Result.from_path(f"{bucket}/run")
    assert state_of(stored)[1] >= 5


def test_a_second_driver_is_refused_while_the_first_lives(bucket: str, marks: str) -> None:
    first = threading.Thread(target=lambda: trainer(bucket, "run", {"steps": 60, "marks": marks, "pace_s": 0.05}).fit())
    first.start()
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not Path(marks, "notes").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(RunInUseError, match="being driven by"):
        trainer(bucket, "run", {"steps": 1, "marks": marks}).fit()
    first.join(ENDS_WITHIN_S)
    assert state_of(train.Result.from_path(f"{bucket}/run")) == (expected(60), 60)


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_not_there_is_said_at_once(marks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_PATIENCE_S", "0.5")
    with pytest.raises(StorageDeniedError, match="bucket"):
        trainer("s3://no-such-bucket-here/runs", "run", {"steps": 1, "marks": marks}).fit()


def test_files_that_the_user_uploads_belong_to_the_checkpoint(bucket: str) -> None:
    def fn() -> None:
        import tempfile

        from support.object_stores.remote_job import save

        run = train.get_context().get_storage().experiment_fs_path

        def upload(checkpoint: train.Checkpoint, name: str) -> train.Checkpoint:
            there = f"{run}/mine/{name}"
            objects = Location.parse("there", there).open(10)
            with checkpoint.as_directory() as directory:
                for path in Path(directory).iterdir():
                    objects.upload(path, path.name)
            return train.Checkpoint(there)

        for step in range(1, 4):
            with tempfile.TemporaryDirectory() as directory:
                save(Path(directory), 0, step, expected(step), 500)
                checkpoint = train.Checkpoint.from_directory(directory)
                mode = train.CheckpointUploadMode.SYNC
                train.report({"step": step}, checkpoint, f"step-{step}", mode, checkpoint_upload_fn=upload)
        train.report(
            {"step": 4},
            train.Checkpoint(f"{run}/mine/step-3"),
            "again",
            checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD,
        )

    result = train.DataParallelTrainer(fn, run_config=train.RunConfig(name="run", storage_path=bucket, verbose=0)).fit()
    assert [checkpoint.path.rpartition("/")[2] for checkpoint, _ in result.best_checkpoints] == [
        "step-1",
        "step-2",
        "step-3",
        "again",
    ]
    assert state_of(result) == (expected(3), 3)


def test_a_checkpoint_of_another_place_in_the_bucket_is_taken_into_the_run(bucket: str, tmp_path: Path) -> None:
    def fn() -> None:
        with tempfile.TemporaryDirectory() as directory:
            save(Path(directory), 0, 2, expected(2), 500)
            objects = Location.parse("test", f"{bucket}/elsewhere").open(ENDS_WITHIN_S)
            for path in Path(directory).iterdir():
                objects.upload(path, path.name)
        train.report({"step": 2}, train.Checkpoint(f"{bucket}/elsewhere"))

    for storage in (bucket, str(tmp_path / "runs")):
        result = train.DataParallelTrainer(fn, run_config=train.RunConfig("run", storage, verbose=0)).fit()
        assert state_of(result) == (expected(2), 2)
        assert result.checkpoint is not None
        assert result.checkpoint.path.startswith(storage)


def test_a_run_in_this_process_may_be_in_memory(marks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    result = trainer("memory://tests/runs", "run", {"steps": 3, "marks": marks, "workers": 0}).fit()
    assert state_of(result) == (expected(3), 3)
