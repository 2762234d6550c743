"""The recovery timeline of a run: the room that things get in it, and the marks of live recovery."""

from __future__ import annotations

import re

from holdfast.pictures.run_timeline import run_timeline
from holdfast.runs.attempt_history import (
    BY_STANDBY,
    MOVED,
    NOT_LIVE,
    REPLACED,
    AttemptHistory,
    AttemptSpan,
    DriverSpan,
    LiveMoment,
)


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


def test_each_kind_of_live_recovery_has_a_sign_of_its_own_with_words_in_the_legend() -> None:
    kinds = [REPLACED, BY_STANDBY, MOVED, NOT_LIVE]
    history = _history(10)
    assert "Live recovery" not in run_timeline(history)
    history.live = [LiveMoment(10.0 * place, kind, f"what <b> {kind} did") for place, kind in enumerate(kinds, start=1)]
    picture, legend = run_timeline(history).split('<p class="tl-legend">')
    marks = re.findall(r'tl-mark recovered ([\w-]+)" style="left:([\d.]+)%" title="([^"]*)"[^>]*>(.)<', picture)
    assert [(kind, title) for kind, _, title, _ in marks] == [(kind, f"what &lt;b&gt; {kind} did") for kind in kinds]
    places = [float(left) for _, left, _, _ in marks]
    assert places == sorted(set(places))
    assert len({sign for *_, sign in marks}) == 4
    for kind, _, _, sign in marks:
        assert re.search(rf'tl-mark recovered {kind}">{sign}</i>\w', legend)
    assert "2 live recoveries" in picture
    history.live = history.live[:1]
    assert "recovered standby" not in run_timeline(history)
