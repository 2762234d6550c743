"""The few reports of an attempt that decide where its time went, found without reading the millions between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.store.metrics import parse_line

if TYPE_CHECKING:
    from .stored_run import StoredRun

_NEAR = 1 << 16  # bytes that are read in a moment


def edge_reports(run: StoredRun, attempt_number: int, kept: float) -> list[dict[str, Any]]:
    """Three reports of rank 0: the first, the last with an index below ``kept``, and the last."""
    first = next(_rows_from(run, attempt_number, 0), None)
    last = next(filter(None, map(parse_line, run.reports_backwards(attempt_number))), None)
    if first is None or last is None:
        return []
    edges = [first, *_last_below(run, attempt_number, kept), last] if first["index"] < kept <= last["index"] else []
    return edges or [first, last]


def _last_below(run: StoredRun, attempt_number: int, kept: float) -> list[dict[str, Any]]:
    """By bisection: the indexes of an attempt's reports grow."""
    low, high = 0, run.reports_size(attempt_number)
    while high - low > _NEAR:
        middle = (low + high) // 2
        row = next(_rows_from(run, attempt_number, middle), None)
        if row is not None and row["index"] < kept:
            low = middle
        else:
            high = middle
    found = []
    for row in _rows_from(run, attempt_number, low):
        if row["index"] >= kept:
            break
        found = [row]
    return found


def _rows_from(run: StoredRun, attempt_number: int, start: int) -> Iterator[dict[str, Any]]:
    """From the first line that begins after that byte, or at 0."""
    rest, is_whole = b"", start == 0
    for piece in run.report_bytes(attempt_number, start):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            row = parse_line(line) if is_whole else None
            is_whole = True
            if row is not None:
                yield row
    row = parse_line(rest) if is_whole else None
    if row is not None:
        yield row
