"""One failure makes other ranks fail too: their tracebacks become one line each, with where to read the whole."""

from __future__ import annotations

import shlex

from holdfast.ui.display_picture import OutputLine, headline

_FIRST = "Traceback (most recent call last):"
_WITHIN_S = 30.0
_SHOWN = 120  # characters
_BETWEEN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class TracebackFold:
    """Shows the first traceback whole. Those of other ranks that follow soon are folded."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None  # the rank that printed one first, and when
        self._folded: set[int] = set()  # ranks within one

    def begin(self) -> None:
        """Another attempt starts."""
        self._first = None
        self._folded.clear()

    def lines(self, line: OutputLine, now: float, run: str) -> list[OutputLine]:
        """What is shown of a line that a worker printed. ``run``: its path."""
        rank = line.rank
        if rank is None or rank < 0:
            return [line]
        if rank in self._folded:
            return self._last_line(line, rank, run)
        if line.text.rstrip() != _FIRST:
            return [line]
        if self._first is None or now - self._first[1] > _WITHIN_S:
            self._first = rank, now
        if self._first[0] == rank:
            return [line]
        self._folded.add(rank)
        return []

    def _last_line(self, line: OutputLine, rank: int, run: str) -> list[OutputLine]:
        text = line.text.rstrip()
        if not text or text[0] in " \t|+" or text == _FIRST or text in _BETWEEN:
            return []
        self._folded.discard(rank)
        assert self._first is not None
        where = f"after rank {self._first[0]}'s error; traceback: holdfast logs {shlex.quote(run)} --rank {rank}"
        return [OutputLine(rank, f"{headline(text, _SHOWN)} ({where})")]
