"""Watch a run: state, progress, metrics, checkpoints, last events. Exits with the run, or at Ctrl+C.

On a terminal the view is redrawn in place. Elsewhere each event is a line, and progress is printed from time to time;
with --json each change is one object per line.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli import experiment_views, output, paths
from holdfast.errors import StorageUnavailableError
from holdfast.printable import printable
from holdfast.runs import timeline
from holdfast.runs.reading import Reading
from holdfast.runs.stored_run import StoredRun
from holdfast.ui.display_picture import Rate, ago, headline, rate_text

_EVERY_S = 1.0
_REMOTE_EVERY_S = 5.0
_PROGRESS_EVERY_S = 10.0
_SHOWN_MOMENTS = 8
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


@dataclass
class View:
    """The run at one look."""

    found: Reading
    told: list[timeline.Moment]
    reports: int
    metrics: Any
    now: float
    rate: float | None = None

    @property
    def is_over(self) -> bool:
        return self.found.driver is None

    @property
    def failures(self) -> int:
        return sum(moment.kind == "failure" for moment in self.told)

    def as_json(self) -> dict[str, Any]:
        attempts, newest = self.found.past.attempts, self.found.past.state.newest
        last = self.told[-1] if self.told else None
        return {
            "time": output.iso_time(self.now),
            "state": self.found.state,
            "reports": self.reports,
            "rate": self.rate,
            "metrics": self.metrics,
            "attempt": attempts[-1].attempt_number if attempts else 0,
            "world_size": attempts[-1].world_size if attempts else 0,
            "last_checkpoint": newest and newest.id,
            "failures": self.failures,
            "last_event": last and {**last._asdict(), "time": output.iso_time(last.time)},
        }


@dataclass
class Plain:
    """Lines for output that is not a terminal."""

    _told: int = 0
    _said: int = -1
    _next: float = 0.0

    def show(self, view: View) -> None:
        for moment in view.told[self._told :]:
            output.say(_moment_line(moment))
        self._told = max(self._told, len(view.told))
        if view.reports != self._said and (view.now >= self._next or view.is_over):
            self._said, self._next = view.reports, view.now + _PROGRESS_EVERY_S
            output.say(f"{output.local_time(view.now)}  {_progress(view)}")
        if view.is_over:
            output.say(f"{output.local_time(view.now)}  the run is {view.found.state}")
        sys.stdout.flush()


@dataclass
class Lines:
    """JSON, one object a line, when something is new."""

    _last: dict[str, Any] = field(default_factory=dict)

    def show(self, view: View) -> None:
        shown = output.plain(view.as_json())
        news = {key: value for key, value in shown.items() if key not in ("time", "rate")}
        if news != self._last:
            self._last = news
            output.print_json_line(shown)


class Screen:
    def __init__(self) -> None:
        sys.stdout.write("\x1b[2J")

    def show(self, view: View) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        width, height = size.columns or 80, size.lines or 24  # a terminal whose size was never set reports 0
        lines = [
            line if len(line) < width else f"{line[: max(0, width - 2)]}…" for line in map(printable, _picture(view))
        ]
        sys.stdout.write(_HOME_AND_CLEAR + "\n".join(lines[: max(1, height - 1)]) + "\n")
        sys.stdout.flush()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_path", metavar="RUN", help=paths.RUN_HELP)
    parser.add_argument(
        "--interval",
        type=_seconds,
        metavar="S",
        help=f"seconds between two updates (default: {_EVERY_S:g}, and {_REMOTE_EVERY_S:g} in an object store)",
    )


def run(arguments: argparse.Namespace) -> int:
    stored = paths.open_run(arguments.run_path)
    experiment_views.refuse(stored, "watch")
    every_s = arguments.interval or stored.location.pause_s(_EVERY_S, _REMOTE_EVERY_S)
    rate = Rate()
    show = Lines() if arguments.json else Screen() if sys.stdout.isatty() else Plain()
    view = _look(stored, rate)
    while True:
        show.show(view)
        if view.is_over:
            return 0
        time.sleep(every_s)
        try:
            view = _look(stored, rate)
        except StorageUnavailableError as error:  # it was there a moment ago, and may be again
            output.note(f"holdfast: {error}")


def _look(stored: StoredRun, rate: Rate) -> View:
    found = stored.read(with_manifests=False)
    reports, row = found.last_report
    view = View(found, timeline.moments(found.records), reports, row and row["metrics"], time.time())
    view.rate = rate.update(time.monotonic(), reports)
    return view


def _picture(view: View) -> list[str]:
    found = view.found
    driver = found.driver
    who = f" (process {driver.pid} on {driver.host})" if driver is not None and driver.pid else ""
    attempts, newest = found.past.attempts, found.past.state.newest
    saved = f"{newest.id}, report {newest.report:,}" if newest else "none yet"
    attempt = f"{attempts[-1].attempt_number}, world size {attempts[-1].world_size}" if attempts else "none yet"
    changed = found.last_change
    lines = [
        ("run", f"{found.run.location}"),
        ("state", f"{found.state}{who}"),
        ("attempt", attempt),
        ("reports", _progress(view)),
        ("checkpoint", saved),
        ("failures", str(view.failures)),
        ("last change", "-" if changed is None else ago(max(0.0, view.now - changed))),
    ]
    recent = [f"  {_moment_line(moment)}" for moment in view.told[-_SHOWN_MOMENTS:]]
    return [*(f"{name:<12}{text}" for name, text in lines), "", *recent]


def _progress(view: View) -> str:
    speed = f" ({rate_text(view.rate)})" if view.rate is not None else ""
    metrics = "" if not view.metrics else f": {output.metrics_text(view.metrics)}"
    return f"report {view.reports:,}{speed}{metrics}"


def _moment_line(moment: timeline.Moment) -> str:
    done = f" [{moment.cause}]; {moment.action}" if moment.cause else ""
    return f"{output.local_time(moment.time)}  {headline(moment.text)}{done}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: use a number of seconds greater than 0")
    return seconds
