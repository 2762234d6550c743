"""One failure makes other ranks fail too: their tracebacks become one line each, with where to read the whole.

Which rank failed first is not known when the tracebacks arrive: a rank that is killed prints none, and its peers do. So
a traceback is held back until the driver names the failure, or for a short while if none comes.
"""

from __future__ import annotations

import shlex
import threading

from holdfast.ui.display_picture import OutputLine, headline

_FIRST = "Traceback (most recent call last):"
_HOLD_S = 3.0  # then it was no failure of the attempt: the script printed it
_MOST_HELD = 2_000  # lines of one rank
_WITHIN_S = 30.0  # after a failure
_SHOWN = 60  # characters
_BETWEEN = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class TracebackFold:
    """Shows the traceback of the rank whose failure the driver names. Those of other ranks are folded.

    The driver tells it what happens; the display's thread asks for what has been held back too long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranks = 0
        self._named: tuple[int, float] | None = None  # whose failure it was, and when it was named
        self._held: dict[int, list[OutputLine]] = {}
        self._held_since: dict[int, float] = {}
        self._folded: set[int] = set()  # ranks within a traceback that is folded

    def begin(self, ranks: int) -> list[OutputLine]:
        """Another attempt starts. Returns what is to be shown, like the others."""
        with self._lock:
            shown = self._released(list(self._held))
            self._ranks, self._named = ranks, None
            self._folded.clear()
            return shown

    def lines(self, line: OutputLine, now: float, run: str) -> list[OutputLine]:
        """A worker's line. ``run``: its path."""
        with self._lock:
            return self._shown(line, now, run)

    def failed(self, rank: int, now: float, run: str) -> list[OutputLine]:
        """The driver has named the first failure: that of ``rank``, or -1 if it was not a rank's."""
        with self._lock:
            self._named = rank, now
            shown = self._released([rank])
            for line in self._released(list(self._held)):
                shown += self._shown(line, now, run)
            return shown

    def late(self, now: float) -> list[OutputLine]:
        """What has been held back long enough."""
        with self._lock:
            return self._released([rank for rank, since in self._held_since.items() if now >= since + _HOLD_S])

    def _released(self, ranks: list[int]) -> list[OutputLine]:
        shown = []
        for rank in ranks:
            shown += self._held.pop(rank, [])
            self._held_since.pop(rank, None)
        return shown

    def _shown(self, line: OutputLine, now: float, run: str) -> list[OutputLine]:
        rank = line.rank
        if rank is None or rank < 0 or self._ranks < 2:
            return [line]
        if rank in self._folded:
            return self._last_line(line, rank, run)
        if rank in self._held:
            self._held[rank].append(line)
            return self._released([rank]) if len(self._held[rank]) >= _MOST_HELD else []
        if line.text.rstrip() != _FIRST:
            return [line]
        if self._named is None or now - self._named[1] > _WITHIN_S:
            self._held[rank], self._held_since[rank] = [line], now
            return []
        if self._named[0] == rank:
            return [line]
        self._folded.add(rank)
        return []

    def _last_line(self, line: OutputLine, rank: int, run: str) -> list[OutputLine]:
        text = line.text.rstrip()
        if not text or text[0] in " \t|+" or text == _FIRST or text in _BETWEEN:
            return []
        self._folded.discard(rank)
        assert self._named is not None
        after = f"after rank {self._named[0]}'s failure" if self._named[0] >= 0 else "after the failure"
        error = headline(text.partition(":")[0], _SHOWN)  # its message only names a lost connection
        return [OutputLine(rank, f"{error} {after}. Traceback: holdfast logs {shlex.quote(run)} --rank {rank}")]
