"""What a node has when its driver is killed is all there for the next one, wherever its gathering was cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.node.node_checkpoints import NodeCheckpoints
from holdfast.store import report_log
from holdfast.store.metrics import line
from holdfast.store.report_log import ReportLog, StagedReport
from holdfast.store.staging import FileEntry

FILES = {0: ["a", "sub/b"], 1: ["c"]}


@pytest.fixture
def kept(tmp_path: Path) -> NodeCheckpoints:
    kept = NodeCheckpoints(tmp_path / "node", lambda: pytest.fail("storage is not asked"))
    for rank, paths in FILES.items():
        shard = kept.layout.shard_dir(4, 0, rank)
        for path in paths:
            (shard / path).parent.mkdir(parents=True, exist_ok=True)
            (shard / path).write_text(path)
        log = ReportLog(kept.layout.report_log(4, rank))
        log.append(line(0, 1.0, {}), StagedReport(0, [FileEntry(path, len(path), "") for path in paths]))
        log.close()
    return kept


def gather(kept: NodeCheckpoints) -> None:
    kept.gather("checkpoint_000001", 4, 0, b"manifest\n", list(FILES.items()))


def left(kept: NodeCheckpoints) -> dict[int, list[int]]:
    kept.take_back()
    return {left.rank: left.lost for left in kept.left()}


def test_what_is_staged_is_told_with_its_log(kept: NodeCheckpoints) -> None:
    assert left(kept) == {0: [], 1: []}
    assert [report_log.parse(found.log).count for found in kept.left()] == [1, 1]


@pytest.mark.parametrize("renames", range(4))
def test_a_gathering_that_is_cut_off_anywhere_is_undone(
    renames: int, kept: NodeCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut(Exception):
        pass

    done, real = 0, os.rename

    def rename(source: Path, target: Path) -> None:
        nonlocal done
        if done == renames:
            raise Cut
        done += 1
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        if renames == 3:
            patch.setattr("holdfast.node.node_checkpoints.replace_file", _write_only_marks)
        with pytest.raises((Cut, InterruptedError)):
            gather(kept)
    assert left(kept) == {0: [], 1: []}
    assert kept.unsaved() == []
    gather(kept)
    assert kept.unsaved() == [b"manifest\n"]


def _write_only_marks(path: Path, data: bytes) -> None:
    if not path.name.endswith(".unsaved"):
        raise InterruptedError
    path.write_bytes(data)


def test_what_is_gathered_is_no_longer_staged(kept: NodeCheckpoints) -> None:
    gather(kept)
    assert left(kept) == {0: [0], 1: [0]}
    assert kept.unsaved() == [b"manifest\n"]


def test_only_the_last_attempt_counts_and_sweeping_spares_a_later_one(kept: NodeCheckpoints) -> None:
    log = ReportLog(kept.layout.report_log(5, 0))
    log.append(line(0, 1.0, {}))
    log.close()
    assert [found.attempt_number for found in kept.left()] == [5]
    kept.sweep(4)
    assert sorted(path.name for path in kept.layout.staging_dir.iterdir()) == ["attempt-0005"]
