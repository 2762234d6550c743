"""The display of an experiment on a terminal: a panel with the trials by status, the best so far and those that run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.printable import printable
from holdfast.tune.experiment.trials_picture import (
    FAILED,
    WORDS,
    TrialsPicture,
    best_parts,
    elapsed_text,
    metric_columns,
    speed_text,
)
from holdfast.tune.experiment.trials_plain_painter import TrialsPlainPainter
from holdfast.tune.progress_reporter import STATUSES, UNBOUNDED, TrialRow, value_columns
from holdfast.ui.display_picture import Picture, Rate, ago, headline
from holdfast.ui.display_streams import Sink
from holdfast.ui.fitted_table import GAP, Column, aligned, fitted, shortened
from holdfast.ui.live_painter import FIRST_CAUSE, LivePainter
from holdfast.ui.plain_painter import PlainPainter

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.text import Text

MAX_WIDTH = 240
MAX_ROWS = 10
STYLES = {"RUNNING": "green", "PAUSED": "cyan", "PENDING": "dim", "ERROR": "bold red", "TERMINATED": "default"}
_FRAME, _LABELS = 4, 13  # columns of the panel's frame, and of the labels in it
_ODD = ("nan", "inf", "-inf")


class TrialsLivePainter(LivePainter):
    max_width = MAX_WIDTH

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._ended_rate = Rate(60.0)

    def _make_plain(self, sink: Sink) -> PlainPainter:
        return TrialsPlainPainter(sink, sink)

    def _draw(self, picture: Picture, now: float, width: int, most: int) -> list[str]:
        """If there are too many lines, fewer trials are shown."""
        assert isinstance(picture, TrialsPicture)
        rates = self._rate.update(now, picture.reports), self._ended_rate.update(now, picture.ended)
        drawn = self._to_lines(draw_panel(picture, rates, now, width, MAX_ROWS), width)
        shown = min(MAX_ROWS, len(picture.rows))
        if len(drawn) <= most or not shown:
            return drawn
        hidden = len(drawn) - most + (shown == picture.counts.get("RUNNING", 0))  # which then have a line
        return self._to_lines(draw_panel(picture, rates, now, width, max(0, shown - hidden)), width)

    def _last_words(self, picture: Picture) -> str:
        assert isinstance(picture, TrialsPicture)
        return "\n".join(filter(None, (picture.last_words, picture.closing)))


def draw_panel(
    picture: TrialsPicture, rates: tuple[float | None, float | None], now: float, width: int, room: int
) -> Panel:
    """``rates``: results and ended trials per second. ``room``: lines for running trials."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("experiment", Text(shortened(printable(picture.path), width - _FRAME - _LABELS), no_wrap=True))
    if picture.resumed:
        rows.add_row("", printable(picture.resumed))
    rows.add_row("state", _state(picture))
    rows.add_row("trials", _trials(picture))
    is_running = picture.state == "running"
    results, trials = rates
    if picture.reports:
        rows.add_row("results", f"{picture.reports:,}{_speed(results) if is_running else ''}")
    if is_running and trials is not None:
        rows.add_row("speed", speed_text(trials, "trials"))
    if picture.best is not None:
        rows.add_row("best so far" if is_running else "best", _best(picture, width))
    if picture.failure_count:
        rows.add_row(*_failures(picture, now, width - _FRAME - _LABELS))
    shown = picture.rows[:room] if is_running else ()
    more = picture.counts.get("RUNNING", 0) - len(shown)
    table = [_table(shown, picture.metric, width)] if shown else []
    if shown and more > 0:
        table.append(Text(f"{more:,} more running", style="dim"))
    return Panel(
        Group(rows, *table),
        title=Text(printable(picture.name), style="bold", no_wrap=True, overflow="ellipsis"),
        title_align="left",
        subtitle=elapsed_text(picture, now),
        subtitle_align="right",
        border_style="dim",
        width=width,
    )


def _best(picture: TrialsPicture, width: int) -> Text:
    """The result, the trial, and as many of its parameters as have space in two lines."""
    from rich.text import Text

    what, name, chosen = best_parts(picture)
    space = max(10, width - _FRAME - _LABELS)
    metric, _, value = what.partition("=")
    result = value.partition(" ")[0]
    what = f"{shortened(metric, max(4, space - 1 - len(result)))}={value}"  # a number is never broken
    text = Text(f"{what}\n", style="bold").append(f"by {shortened(name, space - 3)}", style="not bold")
    shown, left = [], 2 * space - 12
    for part in chosen:
        left -= len(part) + 2
        if left < 0:
            break
        shown.append(part)
    more = len(chosen) - len(shown)
    rest = f"and {more} more" if shown else f"{more} parameter{'' if more == 1 else 's'}"
    listed = ", ".join([*shown, *([rest] if more else [])])
    return text.append(f"\n{listed}", style="not bold") if listed else text


def _speed(rate: float | None) -> str:
    return "" if rate is None else f", {speed_text(rate)}"


def _state(picture: TrialsPicture) -> Text:
    from rich.text import Text

    styles = {"running": "green", "finished": "bold green", "failed": "bold red", "stopping": "yellow"}
    text = Text(printable(picture.state), style=styles.get(picture.state, "cyan"))
    if picture.detail:
        text.append(f", {headline(picture.detail)}", style="default")
    return text


def _trials(picture: TrialsPicture) -> Text:
    from rich.text import Text

    text = Text(f"{picture.trials:,}")
    if picture.total is not None and picture.trials <= picture.total < float("inf"):
        text.append(f" of {picture.total:,.0f}")
    separator = ": "
    for status in STATUSES:
        count = picture.counts.get(status, 0)
        if count:
            text.append(separator)
            text.append(f"{count:,} {WORDS[status]}", style=STYLES[status])
            separator = ", "
    return text


def _failures(picture: TrialsPicture, now: float, space: int) -> tuple[str, Text]:
    """Two lines for each of the last ones: the trial, and what happened. The table at the end has the whole names."""
    from rich.text import Text

    text = Text()
    for failure in picture.failures:
        name, failed, why = failure.text.partition(FAILED)
        when = f"{ago(now - failure.at)}: "
        if not failed:
            name, why = "", failure.text
        elif len(when) + len(name) + len(failed) + len(why) > space:
            when += f"{shortened(name, max(8, space - len(when) - 1))}:\n"
        else:
            when += name + failed
        text.append(f"{chr(10) if text else ''}{when}")
        text.append(headline(why, max(8, min(160, space))), style=FIRST_CAUSE)
    count = picture.failure_count
    return f"{count:,} failed", text


def _table(rows: tuple[TrialRow, ...], metric: str | None, width: int) -> Text:
    from rich.text import Text

    names = Column("running", [printable(row.name) for row in rows], 0, is_number=False, longest=UNBOUNDED)
    columns = fitted([names, *value_columns(rows, metric_columns(rows, metric), None, metric)], width - _FRAME)
    separator = " " * GAP
    text = Text("\n" + separator.join(aligned(column.heading, column) for column in columns), style="bold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        text.append("\n", style="not bold")
        for number, (one, column) in enumerate(zip(cells, columns, strict=True)):
            style = "bold red" if one in _ODD else "bold" if number and column.rank == 0 else "not bold"
            text.append((separator if number else "") + aligned(one, column), style=style)
    return text
