"""Wherever a driver is killed while it commits, and the next one too: the checkpoint is committed once and whole."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.state import Durable
from holdfast.driver.late_reports import take_up
from holdfast.driver.recovery import reconcile
from holdfast.errors import StorageFullError
from holdfast.runs.past import Past
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, Shard
from holdfast.store.metrics import line, read_metrics
from holdfast.store.report_log import ReportLog, StagedReport
from support.store.faulty_disk import TEARABLE, Crash, CrashingDisk

PAYLOAD = {
    0: {"model.pt": b"weights", "shared.json": b"rank 0", ".metadata.json": b"{}"},
    1: {"deep/state.pt": b"momentum", "shared.json": b"rank 1"},
}
WHOLE = {"model.pt": b"weights", "shared.json": b"rank 0", ".metadata.json": b"{}", "deep/state.pt": b"momentum"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.disk._flush", lambda _fd: None)


def report(root: Path) -> RunLayout:
    """Both ranks have reported, and the driver has heard of it."""
    layout, store = RunLayout(root / "run"), CheckpointStore(RunLayout(root / "run"))
    layout.root.mkdir(parents=True)
    for rank, files in PAYLOAD.items():
        for name, content in files.items():
            path = root / f"saved-{rank}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        entries = store.stage(root / f"saved-{rank}", layout.shard_dir(1, 0, rank), move=True)
        log = ReportLog(layout.report_log(1, rank))
        log.append(line(0, 1.0, {"rank": rank}), StagedReport(0, entries))
        log.close()
    return layout


def commit(layout: RunLayout, disk: Disk) -> None:
    store = CheckpointStore(layout, disk)
    shards = [Shard(r, str(layout.shard_dir(1, 0, r)), store.seal(layout.shard_dir(1, 0, r))) for r in PAYLOAD]
    store.commit(Manifest(1, "checkpoint_000001", 1, 0, 1, 2, 1.0, {"rank": 0}, []), shards)


def recover(layout: RunLayout, disk: Disk) -> None:
    """As the next driver does."""
    past = Past(state=Durable(attempt_number=1), last_attempt=ev.AttemptStarted(1, 2, None, 0))
    store = CheckpointStore(layout, disk)
    found, _ = reconcile(past, store, None)
    taken = take_up(past, functools.reduce(core.replay, found, past.state), store, layout)
    assert len([*found, *taken]) == 1
    store.collect()


def assert_committed_whole(layout: RunLayout) -> None:
    store = CheckpointStore(layout)
    manifests, damage = store.scan()
    assert not damage
    assert [(m.id, m.report, m.metrics) for m in manifests] == [("checkpoint_000001", 1, {"rank": 0})]
    store.verify("checkpoint_000001")
    directory = layout.checkpoint_dir("checkpoint_000001")
    found = {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    assert found == WHOLE
    assert not layout.staging_dir.exists()


def points(run: CrashingDisk) -> list[tuple[int, str]]:
    moments = {
        name: ("before", "after", "half") if name in TEARABLE else ("before", "after") for name in set(run.names)
    }
    return [(at, moment) for at, name in enumerate(run.names) for moment in moments[name]]


def test_a_commit_that_is_cut_off_anywhere_is_done_by_the_next_driver(tmp_path: Path) -> None:
    whole = CrashingDisk()
    commit(report(tmp_path / "whole"), whole)
    for number, point in enumerate(points(whole)):
        layout = report(tmp_path / str(number))
        with pytest.raises(Crash):
            commit(layout, CrashingDisk(*point))
        recover(layout, Disk())
        assert_committed_whole(layout)
    assert number > 20


def test_so_is_a_recovery_that_is_cut_off_itself(tmp_path: Path) -> None:
    whole = CrashingDisk()
    recover(report(tmp_path / "whole"), whole)
    for number, point in enumerate(points(whole)):
        layout = report(tmp_path / str(number))
        with pytest.raises(Crash):
            recover(layout, CrashingDisk(*point))
        recover(layout, Disk())
        assert_committed_whole(layout)
    assert number > 20


def test_the_metrics_of_every_report_up_to_it_are_written_once(tmp_path: Path) -> None:
    layout = report(tmp_path)
    recover(layout, Disk())
    for rank in PAYLOAD:
        rows, damage = read_metrics(layout, 1, rank)
        assert [row["metrics"] for row in rows] == [{"rank": rank}]
        assert not damage


def test_files_that_were_changed_after_the_report_are_not_committed(tmp_path: Path) -> None:
    layout = report(tmp_path)
    (layout.shard_dir(1, 0, 1) / "deep" / "state.pt").write_bytes(b"other")
    past = Past(state=Durable(attempt_number=1), last_attempt=ev.AttemptStarted(1, 2, None, 0))
    assert take_up(past, past.state, CheckpointStore(layout), layout) == []


def test_a_run_that_took_another_checkpoint_since_does_not_go_back(tmp_path: Path) -> None:
    layout = report(tmp_path)
    past = Past(state=Durable(attempt_number=1))
    assert take_up(past, past.state, CheckpointStore(layout), layout) == []


def test_what_was_staged_before_the_machine_was_restarted_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("holdfast.store.report_log.boot_id", lambda: "an earlier one")
        layout = report(tmp_path)
    past = Past(state=Durable(attempt_number=1), last_attempt=ev.AttemptStarted(1, 2, None, 0))
    assert take_up(past, past.state, CheckpointStore(layout), layout) == []


def test_files_that_cannot_be_synced_are_kept_for_the_next_driver(tmp_path: Path) -> None:
    class Full(Disk):
        def fsync_file(self, path: Path) -> None:
            raise StorageFullError(f"{path}: no space")

    layout = report(tmp_path)
    with pytest.raises(StorageFullError):
        recover(layout, Full())
    recover(layout, Disk())
    assert_committed_whole(layout)
