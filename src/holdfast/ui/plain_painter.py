"""The display without a terminal: one line per event, no colour, nothing is redrawn."""

from __future__ import annotations

from holdfast.printable import printable
from holdfast.ui.display_picture import (
    DisplayNotice,
    OutputLine,
    Picture,
    Progress,
    Rate,
    TimeLeft,
    clean,
    pick_metrics,
    rate_text,
    value_text,
)
from holdfast.ui.display_streams import Sink

EVERY_S = 10.0  # between two lines about progress, and between two about checkpoints
SHOWN_METRICS = 6


class PlainPainter:
    """Worker lines are written to ``out``, events of the run to ``err``."""

    def __init__(self, out: Sink, err: Sink, progress: Progress | None = None) -> None:
        self._out, self._err = out, err
        self._time_left = TimeLeft(progress)
        self._rate = Rate()
        self._said_reports, self._said_checkpoint = 0, ""
        self._next_progress = self._next_checkpoint = float("-inf")

    def paint(self, picture: Picture, news: list[OutputLine | DisplayNotice], now: float, final: bool) -> None:
        rate = self._rate.update(now, picture.reports)
        lines: list[str] = []
        for item in news:
            if isinstance(item, OutputLine):
                lines.append(f"{line_text(item)}\n")
                continue
            self._write_lines(lines)
            if item.kind in ("failure", "finish"):
                self._tell_checkpoint(picture, now)
            if item.kind == "finish":
                self._tell_progress(picture, rate, now)
            self._tell(picture, item.at, item.text)
        self._write_lines(lines)
        if now >= self._next_checkpoint or final:
            self._tell_checkpoint(picture, now)
        if now >= self._next_progress or final:
            self._tell_progress(picture, rate, now)

    def _write_lines(self, lines: list[str]) -> None:
        self._out.write("".join(lines))
        lines.clear()

    def _tell(self, picture: Picture, at: float, text: str) -> None:
        first, *more = map(clean, text.splitlines() or [""])
        elapsed = max(0.0, at - picture.started)
        self._err.write("\n".join([f"[holdfast {elapsed:.1f}s] {first}", *more, ""]))

    def _tell_checkpoint(self, picture: Picture, now: float) -> None:
        if picture.checkpoint is None or picture.checkpoint[0] == self._said_checkpoint:
            return
        id, report, at = picture.checkpoint
        self._tell(picture, at, f"saved {printable(id)} (report {report:,})")
        self._said_checkpoint = id
        self._next_checkpoint = now + EVERY_S

    def _tell_progress(self, picture: Picture, rate: float | None, now: float) -> None:
        if picture.reports == self._said_reports:
            return
        parts = [self._time_left.text(picture, now) or f"report {picture.reports:,}"]
        if rate is not None:
            parts.append(rate_text(rate))
        if picture.pending:
            parts.append(f"{picture.pending} checkpoint{'' if picture.pending == 1 else 's'} not saved yet")
        parts += [f"{name} {value_text(value)}" for name, value in pick_metrics(picture.metrics, SHOWN_METRICS)]
        self._tell(picture, now, ", ".join(parts))
        self._said_reports = picture.reports
        self._next_progress = now + EVERY_S


def line_text(line: OutputLine, colour: bool = False) -> str:
    text = clean(line.text, colour)
    if line.rank is None:
        return text
    who = f"(rank {line.rank})" if line.rank >= 0 else "(validation)"
    return f"\x1b[36m{who}\x1b[0m {text}" if colour else f"{who} {text}"
