"""The recovery timeline of a run that nobody drove for long: what happened keeps its room."""

from __future__ import annotations

import re

from holdfast.pictures.run_timeline import run_timeline
from holdfast.runs.attempt_history import AttemptHistory, AttemptSpan, DriverSpan


def _history(idle_s: float) -> AttemptHistory:
    later = 60.0 + idle_s
    return AttemptHistory(
        attempts=[AttemptSpan(1, 2, 0.0, 60.0, None, 0, 1), AttemptSpan(2, 2, later, later + 60, None, 0, 2)],
        drivers=[DriverSpan(1, 0.0, 60.0), DriverSpan(2, later, later + 60)],
        ended=later + 60,
    )


def _widths(page: str, kind: str) -> list[float]:
    return [float(width) for width in re.findall(rf'tl-bar {kind}[^"]*" style="left:[\d.]+%;width:([\d.]+)%', page)]


def test_a_night_without_a_driver_is_drawn_short() -> None:
    page = run_timeline(_history(8 * 3600))
    first, second = _widths(page, "attempt")
    assert abs(first - second) < 0.01
    assert first > 40
    assert "8 h 00 m without a driver is drawn short" in page
    assert ">8 h 1 m<" in page  # the axis still tells the time since the beginning


def test_a_short_break_keeps_its_length() -> None:
    page = run_timeline(_history(10))
    assert not _widths(page, "gap")
    assert all(abs(width - 60 / 130 * 100) < 0.01 for width in _widths(page, "attempt"))
