"""The display of a run: a ``Display`` of the driver, whose problems never affect the run.

The driver's loop only records events here. The display's own thread writes them, at most eight times a second, so that
a terminal that is slow, stopped (Ctrl+S) or closed never delays training.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TextIO

from holdfast.printable import printable
from holdfast.ui.display_picture import DisplayNotice, OutputLine, Picture, Progress, ShownFailure, resize_text
from holdfast.ui.display_streams import Redirect, Sink, is_foreground, is_terminal
from holdfast.ui.live_painter import LivePainter
from holdfast.ui.notebook_painter import NotebookPainter, notebook_output, replaced
from holdfast.ui.plain_painter import PlainPainter
from holdfast.ui.traceback_fold import TracebackFold

KINDS = ("auto", "live", "plain", "off")
PAINTS_PER_SECOND = 8
NEWLINE = "\n"
MAX_WAITING = 10_000  # lines that may wait for a slow terminal; further ones are dropped, the logs have them all
FINISH_TIMEOUT_S = 5.0  # how long a terminal that takes no output may hold up the end of a run


class Painter(Protocol):
    """Writes a picture and what happened since the last one. Used by one thread only."""

    def paint(self, picture: Picture, news: list[OutputLine | DisplayNotice], now: float, final: bool) -> None: ...


def make(
    kind: str = "auto", stream: TextIO | None = None, progress: Progress | None = None
) -> BackgroundDisplay | None:
    """A display of the kind that ``settings.display`` names; "auto" is rich in a notebook, live on a terminal and plain
    elsewhere, "off" is none. ``progress``: how far the run is, from its last metrics and the number of reports."""
    if kind not in KINDS:
        raise ValueError(f"HOLDFAST_DISPLAY={kind!r}: use one of {', '.join(KINDS)}")
    out, err = (stream or sys.stdout), (stream or sys.stderr)
    if kind == "off" or out is None or err is None:
        return None
    if kind == "auto" and stream is None and (cell := notebook_output()) is not None:
        return BackgroundDisplay(lambda: NotebookPainter(replaced(cell), progress))
    if kind == "auto":
        kind = "live" if is_terminal(out) and is_terminal(err) and is_foreground(out) else "plain"
    if kind == "live":
        return BackgroundDisplay(lambda: LivePainter(Sink(out), progress), redirect=stream is None)
    return BackgroundDisplay(lambda: PlainPainter(Sink(out), Sink(err), progress))


class BackgroundDisplay:
    """Records events and lets a painter write them from a separate thread, which lives from start to finish. The thread
    reads the picture while the loop changes it, so every field is replaced as a whole, never changed in place.
    """

    noun = "run"

    def __init__(
        self,
        make_painter: Callable[[], Painter],
        *,
        redirect: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_painter = make_painter
        self._redirect = redirect
        self._clock = clock
        self._picture = Picture()
        self._state = ("", "")  # the last one shown
        self._news: deque[OutputLine | DisplayNotice] = deque()
        self._dropped = 0
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._restore: list[Callable[[], None]] = []
        self._pid = os.getpid()
        self._fold = TracebackFold()
        self.error: BaseException | None = None  # why the display stopped, if it did

    def start(self, run_name: str, path: str, resumed: str | None) -> None:
        if self._thread is not None or self._done.is_set():
            return
        picture = self._picture
        picture.name, picture.path, picture.resumed = run_name, path, resumed
        picture.started = picture.state_since = self._clock()
        where = f"{self.noun} {printable(run_name)} in {printable(path)}"
        self._tell("start", where + (f", resumes from {printable(resumed)}" if resumed else ""))
        thread = threading.Thread(target=self._run, name="holdfast-display", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._go_dark(error)
            return
        self._thread = thread
        atexit.register(self._close)
        if self._redirect:
            self._restore = Redirect.install(self._print, lambda: not self._done.is_set())

    def state(self, name: str, detail: str = "") -> None:
        picture = self._picture
        if (name, detail) == self._state:
            return  # two phases of the core may be one for a person
        self._state = (name, detail)
        if name != picture.state:
            picture.state_since = self._clock()
        picture.state, picture.detail = name, detail
        self._tell("state", f"{name}: {detail}" if detail else name)

    def attempt(
        self, attempt_number: int, world_size: int, joined: Sequence[str] = (), left: Sequence[str] = ()
    ) -> None:
        picture = self._picture
        before, picture.attempt_number, picture.world_size = picture.world_size, attempt_number, world_size
        workers = f"{world_size} worker{'' if world_size == 1 else 's'}"
        picture.change = resize_text(before, world_size, joined, left)
        self._show(self._fold.begin(world_size))
        self._tell(
            "attempt", f"attempt {attempt_number} with {workers}{f' ({picture.change})' if picture.change else ''}"
        )

    def workers(self, status: Mapping[int, str]) -> None:
        self._picture.workers = dict(status)

    def progress(self, reports: int, metrics: Mapping[str, Any] | None) -> None:
        picture = self._picture
        picture.reports = reports
        if metrics is not None:
            picture.metrics = metrics

    def checkpoint(self, id: str, report: int) -> None:
        self._picture.checkpoint = (id, report, self._clock())

    def pending(self, count: int, size: int = 0) -> None:
        self._picture.pending, self._picture.pending_bytes = int(count), int(size)

    def failure(self, text: str, action: str, rank: int = -1) -> None:
        picture = self._picture
        self._show(self._fold.failed(rank, self._clock(), picture.path))
        picture.failure_count += 1
        picture.failures = (*picture.failures, ShownFailure(self._clock(), text, action))[-3:]
        self._tell("failure", f"FAILURE: {text}{NEWLINE}  {action}" if action else f"FAILURE: {text}")

    def warning(self, text: str) -> None:
        self._tell("warning", f"warning: {text}")

    def output(self, rank: int, line: str) -> None:
        self._show(self._fold.lines(OutputLine(rank, line), self._clock(), self._picture.path))

    def finish(self, outcome: str, text: str) -> None:
        if self._done.is_set():
            return
        self._show(self._fold.late(math.inf))
        self._picture.state_since = self._clock()
        self._picture.state, self._picture.detail = outcome, ""
        self._tell("finish", f"{outcome}: {text}" if text else outcome)
        self._picture.last_words = text
        self._close()
        atexit.unregister(self._close)

    def _tell(self, kind: str, text: str) -> None:
        self._note(DisplayNotice(self._clock(), kind, text))

    def _print(self, line: str) -> None:
        self._note(OutputLine(None, line))

    def _show(self, lines: Sequence[OutputLine]) -> None:
        for line in lines:
            self._note(line)

    def _note(self, item: OutputLine | DisplayNotice) -> None:
        if self._done.is_set():
            return
        if isinstance(item, OutputLine) and len(self._news) >= MAX_WAITING:
            self._dropped += 1
            return
        self._news.append(item)

    def _run(self) -> None:
        try:
            painter = self._make_painter()
            final = False
            while not final:
                final = self._done.wait(1 / PAINTS_PER_SECOND)
                painter.paint(self._picture, self._take_news(), self._clock(), final)
        except Exception as error:
            self._go_dark(error)

    def _take_news(self) -> list[OutputLine | DisplayNotice]:
        self._show(self._fold.late(self._clock()))
        dropped, self._dropped = self._dropped, 0
        news = [self._news.popleft() for _ in range(len(self._news))]
        if dropped:
            text = f"warning: {dropped:,} lines came too fast to be shown; the run's logs have them"
            news.append(DisplayNotice(self._clock(), "warning", text))
        return news

    def _close(self) -> None:
        if os.getpid() != self._pid:  # a fork's copy has no thread, and the terminal is not its own
            return
        for restore in self._restore:
            restore()
        self._restore = []
        self._show(self._fold.late(math.inf))
        self._done.set()
        if self._thread is not None:
            self._thread.join(FINISH_TIMEOUT_S)

    def _go_dark(self, error: BaseException) -> None:
        self.error = error
        self._done.set()
        self._news.clear()
