"""The list of all runs: shown before all are read; and a run that nobody drives is read again only if it changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StorageError
from holdfast.runs.stored_run import StoredRun
from holdfast.store.disk_run import DiskRun
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.web import run_list, run_rows
from holdfast.web.run_list import RunList
from holdfast.web.run_rows import NONSENSE, READING, RunRow
from holdfast.web.searches import Searches
from holdfast.web.storages import Storages
from support.web.large_runs import write_run


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were read."""
    found: list[str] = []
    read: Callable[..., Any] = run_rows.run_row

    def counted(address: str, location: Location, searches: Searches) -> Any:
        found.append(location.name)
        return read(address, location, searches)

    monkeypatch.setattr(run_list, "run_row", counted)
    return found


@pytest.fixture
def listed(tmp_path: Path) -> RunList:
    for name in ("a", "b", "c"):
        write_run(tmp_path / name, 20, attempts=1)
    return RunList(Storages([Location.parse("x", tmp_path)]), Searches())


def test_without_time_the_names_are_shown_and_later_what_is_known(listed: RunList) -> None:
    first = listed.rows(-1.0)
    assert [(row.name, row.state) for row in first] == [("a", READING), ("b", READING), ("c", READING)]
    assert [row.state for row in listed.rows()] == ["finished"] * 3
    assert [row.state for row in listed.rows(-1.0)] == ["finished"] * 3


def test_a_run_that_has_not_changed_is_not_read_again(listed: RunList, reads: list[str], tmp_path: Path) -> None:
    listed.rows()
    assert sorted(reads) == ["a", "b", "c"]
    listed.rows()
    assert len(reads) == 3
    write_run(tmp_path / "b", 20, attempts=1)  # another one with its name, and a longer journal
    listed.rows()
    assert reads[3:] == ["b"]


def test_a_run_with_a_driver_is_read_at_every_look(listed: RunList, reads: list[str], tmp_path: Path) -> None:
    listed.rows()
    lease = DiskRun(RunLayout(tmp_path / "a")).acquire()
    try:
        listed.rows()
        listed.rows()
    finally:
        lease.release()
    assert reads[3:] == ["a", "a"]


@pytest.mark.parametrize("error", NONSENSE, ids=lambda kind: kind.__name__)
def test_a_run_with_nonsense_in_it_is_named_among_the_others(
    listed: RunList, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """What its records hold is intact, and no version of Holdfast has written it. Each look tries again."""
    fill: Callable[..., None] = run_rows._fill
    tried: list[str] = []

    def meets_nonsense(row: RunRow, *known: Any) -> None:
        tried.append(row.name)
        if row.name == "b":
            raise error("what is that")
        fill(row, *known)

    monkeypatch.setattr(run_rows, "_fill", meets_nonsense)
    for _ in range(2):
        rows = {row.name: row for row in listed.rows()}
        assert {name: row.state for name, row in rows.items()} == {"a": "finished", "b": "unreadable", "c": "finished"}
        assert rows["b"].trouble == [f"Cannot be read ({error.__name__}: what is that)"]
    assert sorted(tried) == ["a", "b", "b", "c"], "the intact ones have not changed"


def test_a_mistake_of_ours_is_not_taken_for_nonsense(listed: RunList, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(run_rows, "_fill", fails)
    with pytest.raises(AssertionError):
        listed.rows()


@pytest.mark.parametrize("error", [*NONSENSE, StorageError, OSError], ids=lambda kind: kind.__name__)
def test_a_run_whose_change_cannot_be_told_is_read_at_every_look(
    listed: RunList, reads: list[str], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fails(_self: StoredRun) -> dict[str, Any]:
        raise error("what is that")

    monkeypatch.setattr(StoredRun, "identity", fails)
    listed.rows()
    listed.rows()
    assert sorted(reads) == ["a", "a", "b", "b", "c", "c"]
