"""A run whose page is open: what is read again, what is not, and that nothing new is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunSpec
from holdfast.runs.stored_run import StoredRun
from holdfast.store import journal, metrics
from holdfast.store.disk_run import DiskRun
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.sealed import Damage
from holdfast.web.watched_run import WatchedRun
from support.web.large_runs import write_stored


class _Counting(DiskRun):
    journals = 0

    def read_journal(self) -> tuple[list[Record], list[Damage]]:
        self.journals += 1
        return super().read_journal()


def _write(path: Path, id: str) -> None:
    events = [ev.DriverStarted(1, RunSpec(num_workers=2)), ev.AttemptStarted(1, 2, None, 0)]
    entries = [(20.0 + number, ev.journalled(event)) for number, event in enumerate(events)]
    write_stored(path, {"name": "run", "trainer": "T", "id": id}, entries)


@pytest.fixture
def store(tmp_path: Path) -> _Counting:
    _write(tmp_path, "1")
    return _Counting(RunLayout(tmp_path))


@pytest.fixture
def watched(tmp_path: Path, store: _Counting) -> WatchedRun:
    return WatchedRun(StoredRun(Location.parse("x", tmp_path), store=store, once=True))


def test_a_journal_that_has_not_grown_is_read_once(watched: WatchedRun, store: _Counting, tmp_path: Path) -> None:
    first = watched.glance()
    assert watched.glance() == first
    assert watched.view().history.attempts[0].number == 1
    assert watched.glance() == first
    assert store.journals == 1
    _append(tmp_path, ev.AttemptStarted(2, 2, None, 0))
    assert watched.glance() != first
    assert store.journals == 2


def test_new_reports_are_seen_without_a_new_journal(watched: WatchedRun, store: _Counting, tmp_path: Path) -> None:
    first = watched.glance()
    (tmp_path / "metrics").mkdir()
    writer = metrics.MetricsWriter(RunLayout(tmp_path))
    writer.append(1, 0, metrics.line(0, 30.0, {"loss": 1.0}))
    writer.close()
    assert watched.glance() != first
    assert watched.view().reports == 1
    assert store.journals == 1


def test_pages_that_ask_at_the_same_time_share_a_look(watched: WatchedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr("holdfast.web.watched_run.time.monotonic", lambda: clock)
    first = watched.view()
    clock += 0.4
    assert watched.view() is first
    clock += 0.2
    assert watched.view() is not first


def test_a_run_that_has_taken_the_name_is_read_anew(watched: WatchedRun, store: _Counting, tmp_path: Path) -> None:
    watched.glance()
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    _write(tmp_path, "2")  # with a journal of the same size
    watched.glance()
    assert store.journals == 2


def test_a_damaged_journal_is_read_at_every_look(watched: WatchedRun, store: _Counting, tmp_path: Path) -> None:
    segment = next((tmp_path / "journal").iterdir())
    segment.write_bytes(segment.read_bytes().replace(b'"kind"', b'"kinb"', 1))
    watched.glance()
    watched.glance()
    assert store.journals == 2


def _append(path: Path, event: ev.Event) -> None:
    layout = RunLayout(path)
    file, _, _ = journal.JournalFile.open(layout, 2)
    file.append([ev.journalled(event)], 40.0)
    file.close()
