"""The data of a display: the current state of the run, the events since the last paint, and texts for values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.printable import duration, printable

MAX_LINE = 4_000
MAX_VALUE = 24

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class OutputLine(NamedTuple):
    """A line that a worker printed, or the driver's own script if ``rank`` is None."""

    rank: int | None
    text: str


class DisplayNotice(NamedTuple):
    """Something that the run did, in words."""

    at: float
    kind: str
    text: str


class ShownFailure(NamedTuple):
    at: float
    text: str
    action: str


@dataclass
class Picture:
    """The run as it is now."""

    name: str = ""
    path: str = ""
    resumed: str | None = None
    started: float = 0.0
    state: str = "starting"
    detail: str = ""
    state_since: float = 0.0
    attempt_number: int = 0
    world_size: int = 0
    change: str = ""  # of its nodes or workers since the last attempt
    workers: Mapping[int, str] = field(default_factory=dict)
    reports: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: tuple[str, int, float] | None = None  # id, report, time of the commit
    pending: int = 0
    pending_bytes: int = 0
    failures: tuple[ShownFailure, ...] = ()
    failure_count: int = 0
    last_words: str = ""


Progress = Callable[[Mapping[str, Any], int], tuple[float | None, str]]  # of metrics and reports: the share, in words


class TimeLeft:
    """How far the run is and when it ends, if its settings say how long it is."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._first: tuple[float, float] | None = None  # when the first progress was seen, and how much that was

    def text(self, picture: Picture, now: float) -> str:
        if self._progress is None or not picture.reports:
            return ""
        share, words = self._progress(picture.metrics, picture.reports)
        if share is None:
            return ""
        if self._first is None or share < self._first[1]:
            self._first = now, share
        return progress_text(share, words, now - self._first[0], self._first[1])


class Rate:
    """Reports a second over a sliding window."""

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._samples: list[tuple[float, int]] = []

    def update(self, now: float, reports: int) -> float | None:
        samples = self._samples
        if samples and (reports < samples[-1][1] or samples[-1][1] == 0):
            samples.clear()  # after discarded reports, or a wait for the first report, the rate would be wrong
        samples.append((now, reports))
        while len(samples) > 2 and samples[1][0] <= now - self._window_s:
            samples.pop(0)
        (then, before), (_, after) = samples[0], samples[-1]
        if after == before or now <= then:
            return None
        return (after - before) / (now - then)


def clean(text: str, colour: bool = False) -> str:
    """A line that a program printed, without what moves the cursor, clears the screen or rings; colours stay if
    ``colour``. For names, and whatever else is not a program's output, there is ``printable``."""
    text = text.rstrip("\r\n")
    text = text[text.rfind("\r") + 1 :]  # a progress bar overwrites itself: only its last state counts
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}… ({len(text) - MAX_LINE:,} more characters)"
    if "\x1b" not in text:
        return _CONTROL.sub("", text)
    kept = _ESCAPE.sub(lambda found: found[0] if colour and _COLOUR.fullmatch(found[0]) else "", text)
    kept = _CONTROL.sub("", kept)
    return f"{kept}\x1b[0m" if "\x1b" in kept else kept


def headline(text: str, limit: int = 240) -> str:
    """The first line of ``text`` that says something, cut to ``limit`` characters."""
    first = next((clean(line) for line in text.splitlines() if line.strip()), "")
    return first if len(first) <= limit else f"{first[: limit - 1]}…"


def resize_text(before: int, now: int, joined: Sequence[str], left: Sequence[str]) -> str:
    """What changed between two attempts: "was 4; node-2 left"."""
    parts = [f"was {before}"] if before and before != now else []
    parts += [f"{_listed(joined)} joined"] if joined else []
    parts += [f"{_listed(left)} left"] if left else []
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def progress_text(share: float, words: str, elapsed_s: float, since: float) -> str:
    """``since``: the share at the start of the time. The remaining time is shown when enough is done to estimate it."""
    done = share - since
    left = elapsed_s * (1 - share) / done if done > 0.005 and elapsed_s >= 5 else None
    return f"{words} ({share:.0%}){f', about {duration(left)} left' if left is not None and left >= 1 else ''}"


def ago(seconds: float) -> str:
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def rate_text(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s"


def value_text(value: object) -> str:
    """A metric's value in few characters, for values of any type."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{float(value):.4g}" if abs(value) < 10**300 else "huge"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        text = printable(value[:MAX_LINE].replace("\n", " ").rstrip())
        return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
    if isinstance(value, Mapping):
        return f"{{{len(value)} keys}}"
    if isinstance(value, (list, tuple)):
        return f"[{len(value)} items]"
    return f"<{type(value).__name__}>"


def is_odd(value: object) -> bool:
    """Whether a number is one that training should not give."""
    return isinstance(value, float) and not math.isfinite(value)


def pick_metrics(metrics: Mapping[str, Any], count: int) -> list[tuple[str, object]]:
    """The metrics to show: numbers before the rest, and otherwise in the order in which the user gave them."""
    try:
        items = list(metrics.items())
    except RuntimeError:  # its owner is just changing it
        return []
    items.sort(key=lambda item: isinstance(item[1], bool) or not isinstance(item[1], (int, float)))
    return [(printable(str(name)), value) for name, value in items[:count]]
