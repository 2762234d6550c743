"""The traceback that stays whole is that of the rank whose failure the driver names, whichever was printed first."""

from __future__ import annotations

import math

from holdfast.ui.display_picture import OutputLine
from holdfast.ui.traceback_fold import TracebackFold

HEAD = "Traceback (most recent call last):"
OWN = [OutputLine(1, text) for text in (HEAD, "  File x", "ValueError: bad")]
KNOCK_ON = [OutputLine(0, text) for text in (HEAD, "  File y", "", "RuntimeError: closed by peer")]
FOLDED = "RuntimeError after rank 1's failure. Traceback: holdfast logs 'runs/my run' --rank 0"


def fold(ranks: int = 2) -> TracebackFold:
    made = TracebackFold()
    assert made.begin(ranks) == []
    return made


def told(made: TracebackFold, lines: list[OutputLine], now: float = 1.0) -> list[OutputLine]:
    return [shown for line in lines for shown in made.lines(line, now, "runs/my run")]


def test_the_knock_on_failure_is_one_line_even_if_it_was_printed_first() -> None:
    made, after = fold(), OutputLine(0, "after")
    assert told(made, [*KNOCK_ON, after, *OWN]) == []
    assert made.failed(1, 1.5, "runs/my run") == [*OWN, OutputLine(0, FOLDED), after]
    assert told(made, [*KNOCK_ON, after, *OWN], 2.0) == [OutputLine(0, FOLDED), after, *OWN]


def test_a_rank_that_was_killed_printed_none() -> None:
    made = fold()
    assert told(made, KNOCK_ON) == []
    assert made.failed(1, 1.5, "runs/my run") == [OutputLine(0, FOLDED)]
    made = fold()
    assert made.failed(-1, 1.0, "runs/my run") == []
    assert [line.text for line in told(made, KNOCK_ON)] == [FOLDED.replace("rank 1's", "the")]


def test_a_traceback_without_a_failure_is_shown_soon() -> None:
    made, after = fold(), OutputLine(0, "after")
    assert told(made, [*KNOCK_ON, after]) == []
    assert made.late(3.9) == []
    assert made.late(4.0) == [*KNOCK_ON, after]
    assert told(made, [after]) == [after]


def test_what_is_held_is_shown_at_the_end_of_the_attempt_and_of_the_run() -> None:
    made = fold()
    assert told(made, KNOCK_ON) == []
    assert made.begin(2) == KNOCK_ON
    assert told(made, OWN) == []
    assert made.late(math.inf) == OWN


def test_long_after_a_failure_a_traceback_is_another_matter() -> None:
    made = fold()
    made.failed(1, 1.0, "runs")
    assert told(made, KNOCK_ON, 32.0) == []
    assert made.late(35.0) == KNOCK_ON


def test_a_rank_that_prints_without_end_is_not_held() -> None:
    made = fold()
    lines = [KNOCK_ON[0], *(OutputLine(0, str(number)) for number in range(5_000))]
    assert told(made, lines) == lines


def test_a_single_worker_waits_for_nothing() -> None:
    assert told(fold(1), OWN) == OWN
