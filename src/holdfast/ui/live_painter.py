"""The display on a terminal: one small panel that is redrawn in place, and worker lines that scroll above it.

The cursor is never hidden and no terminal mode is changed, so a killed driver leaves nothing behind. rich draws the
panel; the display's thread imports it, so that it does not delay the first training step.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.printable import duration, printable
from holdfast.ui.display_picture import (
    DisplayNotice,
    OutputLine,
    Picture,
    Progress,
    Rate,
    TimeLeft,
    ago,
    clean,
    headline,
    is_odd,
    pick_metrics,
    rate_text,
    value_text,
)
from holdfast.ui.display_streams import Sink, terminal_size
from holdfast.ui.fitted_table import shortened
from holdfast.ui.plain_painter import PlainPainter, line_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.panel import Panel
    from rich.text import Text

MAX_WIDTH = 100
METRIC_WIDTH, LONG_METRIC_WIDTH = 28, 30
METRIC_ROWS = 2
_NOT_A_NAME = 14  # of the width of a metric
PANEL_EVERY_S = 0.25  # laying the panel out takes milliseconds; lines that come sooner go above the one there is
STYLES = {"running": "green", "finished": "bold green", "failed": "bold red", "recovering": "yellow"}
FIRST_CAUSE = "bold red"
WORKER_STYLES = {"running": "green", "dead": "red"}


class LivePainter:
    """Draws the panel; between two paints the cursor rests in the first column of the line below it."""

    max_width = MAX_WIDTH

    def __init__(self, sink: Sink, progress: Progress | None = None) -> None:
        from rich.console import Console

        self._time_left = TimeLeft(progress)
        self._sink = sink
        self._console = Console(file=sink.stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._colour = self._console.color_system is not None and not self._console.no_color
        self._plain = self._make_plain(sink) if self._console.is_dumb_terminal else None
        self._rate = Rate()
        self._drawn: list[str] = []
        self._drawn_width = 1
        self._drawn_at = float("-inf")

    def paint(self, picture: Picture, news: list[OutputLine | DisplayNotice], now: float, final: bool) -> None:
        if self._plain is not None:
            self._plain.paint(picture, news, now, final)
            return
        columns, rows = terminal_size(self._sink.stream)
        width = max(20, min(columns - 1, self.max_width))
        drawn = self._drawn
        most = max(1, rows - 2)  # lines that have scrolled off the top cannot be redrawn
        if final or width != self._drawn_width or now >= self._drawn_at + PANEL_EVERY_S:
            drawn = self._draw(picture, now, width, most)
            self._drawn_at = now
        if not final and len(drawn) > most:
            drawn = [*drawn[: most - 1], drawn[-1]]
        above = [text for text in map(self._above, news) if text is not None]
        below = [clean(line) for line in self._last_words(picture).splitlines()] if final else []
        if drawn != self._drawn or above or below:
            self._sink.write(self._frame(above, drawn, below, columns))
        self._drawn, self._drawn_width = drawn, width

    def _make_plain(self, sink: Sink) -> PlainPainter:
        return PlainPainter(sink, sink)

    def _draw(self, picture: Picture, now: float, width: int, most: int) -> list[str]:
        """The panel's lines, ``most`` of them if that can be done."""
        progress = self._time_left.text(picture, now)
        rate = self._rate.update(now, picture.reports)
        return self._to_lines(draw_panel(picture, rate, now, width, progress), width)

    def _last_words(self, picture: Picture) -> str:
        return picture.last_words

    def _frame(self, above: list[str], drawn: list[str], below: list[str], columns: int) -> str:
        rows_each = -(-self._drawn_width // max(1, columns))  # a terminal made narrower has wrapped the old panel
        up = len(self._drawn) * rows_each
        start = f"\x1b[{up}A\r" if up else "\r"
        if above or rows_each > 1:
            start += "\x1b[J"
        panel = "".join(f"{line}\x1b[K\n" for line in drawn)
        return "".join([start, *(f"{line}\n" for line in above), panel, "\x1b[J", *(f"{line}\n" for line in below)])

    def _above(self, item: OutputLine | DisplayNotice) -> str | None:
        if isinstance(item, OutputLine):
            return line_text(item, self._colour)
        if item.kind not in ("warning", "failure"):
            return None  # the panel says it
        text = "\n".join(map(clean, item.text.splitlines()))
        style = "\x1b[33m" if item.kind == "warning" else "\x1b[1;31m"
        return f"{style}{text}\x1b[0m" if self._colour else text

    def _to_lines(self, panel: Panel, width: int) -> list[str]:
        with self._console.capture() as capture:
            self._console.print(panel, width=width)
        return capture.get().splitlines()


def draw_panel(picture: Picture, rate: float | None, now: float, width: int, progress: str = "") -> Panel:
    """The panel as rich draws it: one row a subject, and no row that has nothing to say."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("run", Text(shortened(printable(picture.path), width - 15), no_wrap=True))
    if picture.resumed:
        rows.add_row("", f"resumes from {printable(picture.resumed)}")
    rows.add_row("state", _state(picture, now))
    if picture.world_size:
        rows.add_row("workers", _workers(picture))
    if progress:
        rows.add_row("progress", progress)
    if picture.reports:
        speed = f", {rate_text(rate)}" if rate is not None and picture.state == "running" else ""
        rows.add_row("reports", f"{picture.reports:,}{speed}")
    if picture.metrics:
        rows.add_row(*_metrics(picture, width))
    if picture.checkpoint or picture.pending:
        rows.add_row("saved", _checkpoint(picture, now))
    if picture.failure_count:
        rows.add_row(*_failures(picture, now))
    title = Text(printable(picture.name), style="bold", no_wrap=True, overflow="ellipsis")
    return Panel(
        rows,
        title=title,
        title_align="left",
        subtitle=duration(now - picture.started),
        subtitle_align="right",
        border_style="dim",
        width=width,
    )


def _state(picture: Picture, now: float) -> Text:
    from rich.text import Text

    text = Text(printable(picture.state), style=STYLES.get(picture.state, "cyan"))
    if picture.state not in ("finished", "failed", "stopped"):
        text.append(f" for {duration(now - picture.state_since)}", style="default")
    if picture.detail:
        text.append(f", {headline(picture.detail)}", style="default")
    return text


def _workers(picture: Picture) -> Text:
    from rich.text import Text

    text = Text()
    status = picture.workers or dict.fromkeys(range(picture.world_size), "starting")
    for name, count in sorted(Counter(status.values()).items()):
        text.append(", " if text else "")
        text.append(f"{count} {printable(name)}", style=WORKER_STYLES.get(name, "default"))
        if name in ("dead", "returned") and count < len(status):
            text.append(f" (rank {_some(sorted(rank for rank in status if status[rank] == name))})")
    if picture.attempt_number > 1:
        change = f" ({picture.change})" if picture.change else ""
        text.append(f", attempt {picture.attempt_number}{change}", style="dim")
    return text


def _some(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"


def _metrics(picture: Picture, width: int) -> tuple[str, RenderableType]:
    from rich.table import Table
    from rich.text import Text

    inner = width - 14
    most = max(1, inner // METRIC_WIDTH)
    names = [len(name) for name, _ in pick_metrics(picture.metrics, most * METRIC_ROWS)]
    wanted = max(names, default=0) + _NOT_A_NAME
    pairs = max(1, inner // min(max(wanted, METRIC_WIDTH), LONG_METRIC_WIDTH))
    name_width = max(8, inner // pairs - _NOT_A_NAME)
    shown = pick_metrics(picture.metrics, pairs * METRIC_ROWS if pairs > 1 else 2 * METRIC_ROWS)
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(min(pairs, len(shown))):
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=name_width)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=10, min_width=8, justify="right")
    for first in range(0, len(shown), pairs):
        cells: list[Text] = []
        for name, value in shown[first : first + pairs]:
            cells += [
                Text(shortened(name, name_width)),
                Text(value_text(value), style="bold red" if is_odd(value) else "bold"),
            ]
        table.add_row(*cells)
    left_out = len(picture.metrics) - len(shown)
    return f"metrics\n+{left_out} more" if left_out > 0 else "metrics", table


def _checkpoint(picture: Picture, now: float) -> Text:
    from rich.text import Text

    text = Text()
    if picture.checkpoint is None:
        text.append("no checkpoint yet")
    else:
        id, report, at = picture.checkpoint
        text.append(printable(id), style="bold")
        text.append(f" of report {report:,}, {ago(now - at)}")
    if picture.pending:
        size = f" ({picture.pending_bytes / 1e9:.3g} GB)" if picture.pending_bytes >= 1e7 else ""
        text.append(f", {picture.pending} more being saved{size}", style="yellow")
    return text


def _failures(picture: Picture, now: float) -> tuple[str, Text]:
    from rich.text import Text

    text = Text()
    for failure in picture.failures:
        text.append(f"{chr(10) if text else ''}{ago(now - failure.at)}: ")
        text.append(headline(failure.text), style=FIRST_CAUSE)
        if failure.action:
            text.append(f" ({headline(failure.action)})", style="green")
    count = picture.failure_count
    return f"{count} failure{'' if count == 1 else 's'}", text
