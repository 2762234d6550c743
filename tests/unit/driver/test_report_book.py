"""What the callback is told of reports, and what a checkpoint carries of them, across the attempts of a run."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.driver.effects import CallBack, Effect, WriteReports
from holdfast.driver.reports import ReportBook
from holdfast.store.metrics import line as metrics_line
from holdfast.wire import messages as wire

Told = list[tuple[int, list[dict[str, Any]], str | None]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def written() -> list[WriteReports]:
    return []


@pytest.fixture
def book(told: Told, written: list[WriteReports]) -> ReportBook:
    def emit(effect: Effect) -> None:
        if isinstance(effect, CallBack):
            told.append((effect.number, effect.metrics, effect.checkpoint))
        elif isinstance(effect, WriteReports):
            written.append(effect)

    book = ReportBook(emit, calls_back=True)
    book.begin(1, 1, base=0)
    return book


def report(book: ReportBook, attempt_number: int, index: int, value: int) -> None:
    line = metrics_line(index, 0.0, {"value": value})
    book.add(wire.Reports(attempt_number, 0, [wire.Report(index, line)]))


def test_reports_wait_for_the_first_checkpoint_that_is_on_its_way(book: ReportBook, told: Told) -> None:
    for index in range(3):
        report(book, 1, index, index)
    book.call_back({1: 1})
    assert told == [(1, [{"value": 0}], None)]
    book.committed(1, 1, "a")
    book.call_back({})
    assert told[1:] == [(2, [{"value": 1}], "a"), (3, [{"value": 2}], None)]


def test_a_checkpoint_that_outlives_its_attempt_keeps_its_metrics_and_its_place(book: ReportBook, told: Told) -> None:
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


def test_a_late_report_of_an_attempt_that_is_gone_is_written_down(
    book: ReportBook, told: Told, written: list[WriteReports]
) -> None:
    book.begin(2, 1, base=0)
    report(book, 1, 0, 10)
    book.call_back({})
    assert told == []
    assert written == [WriteReports(1, 0, metrics_line(0, 0.0, {"value": 10}))]
