"""What the callback is told of reports, and what a checkpoint carries of them, across the groups of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.driver.reports import ReportBook
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import line as metrics_line
from holdfast.wire import messages as wire

Told = list[tuple[int, list[dict[str, Any]], str | None]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def book(tmp_path: Path, told: Told) -> ReportBook:
    book = ReportBook(lambda: RunLayout(tmp_path), lambda *report: told.append(report))
    book.begin(1, 1, base=0)
    return book


def report(book: ReportBook, generation: int, index: int, value: int) -> None:
    line = metrics_line(index, 0.0, {"value": value})
    book.add(wire.Reports(generation, 0, [wire.Report(index, line)]))


def test_reports_wait_for_the_first_checkpoint_that_is_on_its_way(book: ReportBook, told: Told) -> None:
    for index in range(3):
        report(book, 1, index, index)
    book.call_back({1: 1})
    assert told == [(1, [{"value": 0}], None)]
    book.committed(1, 1, "a")
    book.call_back({})
    assert told[1:] == [(2, [{"value": 1}], "a"), (3, [{"value": 2}], None)]
    book.close()


def test_a_checkpoint_that_outlives_its_group_keeps_its_metrics_and_its_place(book: ReportBook, told: Told) -> None:
    report(book, 1, 0, 10)
    report(book, 1, 1, 11)
    book.call_back({1: 0})
    book.begin(2, 1, base=1)
    report(book, 2, 0, 20)
    book.call_back({1: 0})
    assert told == [], "the reports of a run are told in their order"
    assert book.metrics_of(1, 0) == {"value": 10}
    assert book.metrics_of(2, 0) == {"value": 20}
    book.committed(1, 0, "a")
    book.call_back({})
    assert told == [(1, [{"value": 10}], "a"), (2, [{"value": 11}], None), (2, [{"value": 20}], None)]
    assert book.metrics_of(1, 0) == {}, "what nobody needs any more is forgotten"
    book.close()


def test_a_late_report_of_a_group_that_is_gone_is_written_down(book: ReportBook, told: Told, tmp_path: Path) -> None:
    book.begin(2, 1, base=0)
    report(book, 1, 0, 10)
    book.call_back({})
    assert told == []
    book.close()
    assert RunLayout(tmp_path).metrics_file(1, 0).read_bytes() == metrics_line(0, 0.0, {"value": 10})
