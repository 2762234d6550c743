"""What a rank logs of its reports is there however its process ends, and nothing else is read from a log."""

from __future__ import annotations

import errno
import io
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import StorageError, StorageFullError
from holdfast.store import report_log
from holdfast.store.disk import Disk
from holdfast.store.metrics import line
from holdfast.store.report_log import RankReports, ReportLog, StagedReport
from holdfast.store.staging import FileEntry

WRITER = """
import sys
from pathlib import Path
from holdfast.store.metrics import line
from holdfast.store.report_log import ReportLog
log = ReportLog(Path(sys.argv[1]))
log.append(line(0, 1.0, {}))
log.durable = 0
log.append(line(1, 1.0, {"text": "x" * int(sys.argv[2])}))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".staging" / "attempt-0001" / "rank-0.jsonl"


def read(path: Path) -> RankReports:
    return report_log.parse(report_log.read(path))


def staged(index: int, path: str = "model.pt", size: int = 3) -> StagedReport:
    return StagedReport(index, [FileEntry(path, size, "")], "best", {"split": "test"})


def test_a_log_is_read_as_it_was_written(path: Path) -> None:
    log = ReportLog(path)
    lines = [line(index, 1.5, {"loss": float("nan")}) for index in range(3)]
    for index, content in enumerate(lines):
        log.append(content, staged(index) if index == 1 else None)
    assert not read(path).returned
    log.returned()
    log.close()
    found = read(path)
    assert found.lines == dict(enumerate(lines))
    assert found.staged == {1: staged(1)}
    assert (found.count, found.returned) == (3, True)
    assert path.parent.parent.stat().st_mode & 0o077 == 0


def test_no_log_is_no_report(path: Path) -> None:
    assert (read(path).count, read(path).returned) == (0, False)


def test_a_torn_report_was_not_made(path: Path) -> None:
    log = ReportLog(path)
    log.append(line(0, 1.0, {}))
    log.append(line(1, 1.0, {}), staged(1))
    log.close()
    content = report_log.read(path)
    path.write_bytes(content[:-5] + bytes(100))
    found = read(path)
    assert found.count == 1
    assert found.staged == {}, "its files are there, but not all of its report"


def test_without_space_the_report_is_refused_and_the_next_one_is_whole(path: Path) -> None:
    class Full(Disk):
        fails = False

        def reserve(self, file: io.FileIO, size: int) -> None:
            if self.fails:
                super().reserve(file, size - 100)
                raise StorageFullError("no space")
            super().reserve(file, size)

    disk = Full()
    log = ReportLog(path, disk)
    log.append(line(0, 1.0, {}))
    disk.fails = True
    with pytest.raises(StorageFullError):
        log.append(line(1, 1.0, {"text": "x" * (1 << 20)}))
    disk.fails = False
    log.append(line(1, 2.0, {}))
    log.close()
    assert read(path).count == 2


def test_a_log_that_names_a_file_outside_is_not_used(path: Path) -> None:
    log = ReportLog(path)
    log.append(line(0, 1.0, {}), staged(0, "../../../run.json"))
    log.close()
    assert read(path).count == 0


def test_durable_reports_are_dropped_when_a_log_has_grown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_log, "_PRUNED_ABOVE", 1000)
    log = ReportLog(path)
    for index in range(100):
        log.durable = index - 3
        log.append(line(index, 1.0, {}), staged(index) if index % 2 else None)
    log.close()
    found = read(path)
    assert len(report_log.read(path)) < 3000
    assert found.count == 100
    assert set(range(97, 100)) <= found.lines.keys()
    assert {97, 99} <= found.staged.keys()


def test_nothing_counts_behind_a_note_that_cannot_be_read(path: Path) -> None:
    """It may say which files belong to the next report: a checkpoint without them would be taken for complete."""
    log = ReportLog(path)
    for index in range(3):
        log.append(line(index, 1.0, {}), staged(index))
    log.returned()
    log.close()
    content = report_log.read(path)
    notes = [number for number, content in enumerate(content.split(b"\n")) if content.startswith(b'{"staged"')]
    lines = content.split(b"\n")
    lines[notes[1]] = lines[notes[1]].replace(b"model.pt", b"model.qt")
    found = report_log.parse(b"\n".join(lines))
    assert (found.count, sorted(found.staged), found.returned) == (1, [0], False)


def test_files_that_changed_after_the_report_are_noticed(tmp_path: Path) -> None:
    reports = RankReports({0: b""}, {0: staged(0)})
    shard = tmp_path / "shard"
    shard.mkdir()
    assert reports.damage(0, shard) == "model.pt is missing"
    (shard / "model.pt").write_bytes(b"abc")
    assert reports.damage(0, shard) is None
    (shard / "model.pt").write_bytes(b"abcd")
    assert reports.damage(0, shard) == "model.pt has 4 bytes instead of 3"


@pytest.mark.parametrize("size", [10, 5 << 20])  # with the larger one, durable reports are dropped
def test_a_reader_waits_for_a_writer_that_lives(size: int, path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path), str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        assert report_log._is_written(path)
        report_log.await_writers([path], timeout_s=0.05)  # gives up
        os.kill(writer.pid, signal.SIGKILL)
        report_log.await_writers([path], timeout_s=30.0)
        assert not report_log._is_written(path)


def test_what_was_logged_before_the_machine_was_restarted_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it was synced: files may have their sizes, and zeros in them."""
    with monkeypatch.context() as before:
        before.setattr(report_log, "boot_id", lambda: "an earlier one")
        log = ReportLog(path)
        log.append(line(0, 1.0, {}), staged(0))
        log.close()
    assert read(path).count == 0
    assert report_log.parse(report_log.read(path, any_boot=True)).count == 1


def test_a_file_system_that_cannot_map_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> mmap.mmap:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr("holdfast.store.report_log.mmap.mmap", refuse)
    log = ReportLog(path)
    for index in range(3):
        log.append(line(index, 1.0, {"text": "x" * (50 << 10)}), staged(index))
    log.returned()
    found = read(path)
    log.close()
    assert (found.count, len(found.staged), found.returned) == (3, 3, True)


def test_dropping_durable_reports_syncs_nothing_and_fails_no_report(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Disk):
        def open_append(self, path: Path, *, new: bool) -> io.FileIO:
            raise StorageFullError("no space")

    def flush(_fd: int) -> None:
        raise AssertionError("a report must not wait for the disk")

    monkeypatch.setattr(report_log, "_PRUNED_ABOVE", 1000)
    monkeypatch.setattr("holdfast.store.disk._flush", flush)
    for disk in (Disk(), Full()):
        log = ReportLog(path, disk)
        for index in range(100):
            log.durable = index - 1
            log.append(line(index, 1.0, {}))
        log.close()
        assert read(path).count == 100


def test_nothing_is_logged_where_a_run_has_been_moved_away(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(StorageError, match="was moved or removed"):
        ReportLog(run / ".staging" / "attempt-0001" / "rank-0.jsonl").append(line(0, 1.0, {}))
    assert not run.exists()


def test_a_successor_continues_the_log_behind_the_last_whole_line(path: Path) -> None:
    log = ReportLog(path)
    log.append(line(0, 1.0, {}), staged(0))
    log.append(line(1, 1.0, {}))
    log.close()
    whole = len(report_log.read(path))
    with path.open("r+b") as file:  # its process was killed while it wrote the next one
        file.seek(whole)
        file.write(b"half a line that is longer than what follows" * 20)
    successor = ReportLog(path, continues=True)
    successor.append(line(2, 1.0, {}))
    successor.close()
    found = read(path)
    assert sorted(found.lines) == [0, 1, 2]
    assert found.staged == {0: staged(0)}


def test_a_successor_of_a_rank_that_reported_nothing_begins_the_log(path: Path) -> None:
    path.parents[2].mkdir(parents=True, exist_ok=True)
    successor = ReportLog(path, continues=True)
    successor.append(line(3, 1.0, {}))
    successor.close()
    assert sorted(read(path).lines) == [3]
