"""Checkpoints that are not saved yet, as a reader finds them: on disk, and on the nodes of a run in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.run.events import AttemptStarted
from holdfast.runs.pending_checkpoints import pending_checkpoints
from holdfast.store import scratch
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location

ATTEMPTS = [AttemptStarted(1, 2, None, 0), AttemptStarted(2, 2, "checkpoint_000004", 4)]


def stage(layout: RunLayout, attempt: int, index: int, rank: int, size: int) -> None:
    directory = layout.shard_dir(attempt, index, rank)
    directory.mkdir(parents=True)
    Path(directory, "weights").write_bytes(b"x" * size)


def test_what_ranks_staged_on_disk(tmp_path: Path) -> None:
    layout, location = RunLayout(tmp_path), Location.parse("x", tmp_path)
    assert pending_checkpoints(location, {}, ATTEMPTS) == []
    stage(layout, 2, 1, 0, 10)
    stage(layout, 2, 1, 1, 20)
    stage(layout, 1, 3, 0, 5)
    stage(layout, 9, 0, 0, 5)  # of an attempt that no journal knows
    layout.report_log(2, 0).parent.mkdir()
    layout.report_log(2, 0).write_bytes(b"a log beside it")
    found = {
        one.report: (one.attempt, one.ranks, one.size, one.is_whole)
        for one in pending_checkpoints(location, {}, ATTEMPTS)
    }
    assert found == {4: (1, 1, 5, False), 6: (2, 2, 30, False)}


def test_what_nodes_hold_for_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path))
    location, identity = Location.parse("x", "s3://bucket/runs/mine"), {"id": "one"}
    run = scratch.run_directory(scratch.scratch_root(str(tmp_path)), location, "one")
    for node in ("a", "b"):
        layout = RunLayout(scratch.epoch_directory(run, 2) / node)
        stage(layout, 2, 1, ord(node), 10)
        layout.checkpoint_dir("checkpoint_000005").mkdir(parents=True)
        Path(layout.checkpoint_dir("checkpoint_000005"), f"weights-{node}").write_bytes(b"y" * 7)
        Path(layout.checkpoints_dir, ".checkpoint_000005.unsaved").write_text("{}")
        layout.checkpoint_dir("checkpoint_000004").mkdir()  # is saved, and kept for the workers
        Path(layout.checkpoint_dir("checkpoint_000004"), "weights").write_bytes(b"z")
    found = {one.id or one.report: (one.size, one.ranks) for one in pending_checkpoints(location, identity, ATTEMPTS)}
    assert found == {6: (20, 2), "checkpoint_000005": (14, 0)}
    assert pending_checkpoints(location, {"id": "another"}, ATTEMPTS) == []
