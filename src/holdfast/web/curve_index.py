"""Curves of a run with any number of reports, in bounded memory: least and greatest value of each bucket of reports.

Reports are read once, a slice at a time, so that a request never takes long; until all of them are read, a sample of
lines from the whole file stands in for the rest. What is appended later is read from where the last look ended.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.core.metric_names import flat_items, number
from holdfast.core.run.events import AttemptStarted
from holdfast.runs.stored_run import StoredRun
from holdfast.store.metrics import parse_line

BUCKETS = 600  # of a curve; it has at most twice as many while it grows
METRICS = 64  # of a run
ATTEMPTS = 200  # the last ones
_SAMPLES = 400
_PIECE_LINES = 2_000  # between two looks at the clock
_BIG = 4 << 20  # bytes; less is read in a moment

Point = tuple[float, float]


class BucketedCurve:
    """Buckets of equal numbers of reports. When there are too many, each two become one."""

    __slots__ = ("_buckets", "_width", "_xs", "_ys", "odd")

    def __init__(self) -> None:
        self._buckets: list[tuple[float, float, float, float]] = []  # x and y of the least, then of the greatest
        self._width = 1
        self._xs: list[float] = []
        self._ys: list[float] = []
        self.odd = 0  # values that are NaN or infinite

    def add(self, x: float, y: float) -> None:
        if not math.isfinite(y):
            self.odd += 1
            return
        self._xs.append(x)
        self._ys.append(y)
        if len(self._ys) >= self._width:
            self._flush()

    def _flush(self) -> None:
        xs, ys = self._xs, self._ys
        low, high = min(ys), max(ys)
        self._buckets.append((xs[ys.index(low)], low, xs[ys.index(high)], high))
        self._xs, self._ys = [], []
        if len(self._buckets) >= 2 * BUCKETS:
            pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
            self._buckets = [_merged(first, second) for first, second in pairs]
            self._width *= 2

    def points(self) -> list[Point]:
        """In the order of the reports; exact as long as there are few."""
        points: list[Point] = []
        for low_x, low, high_x, high in self._buckets:
            points += sorted({(low_x, low), (high_x, high)})
        if self._ys and self._width > 1:
            points.append((self._xs[-1], self._ys[-1]))
        return points


def _merged(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> Any:
    low = a if a[1] <= b[1] else b
    high = a if a[3] >= b[3] else b
    return low[0], low[1], high[2], high[3]


class AttemptCurves:
    """Of one attempt: a curve for each metric, and the times of some reports, evenly spread."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.curves: dict[str, BucketedCurve] = {}
        self.times: list[tuple[int, float]] = []
        self.last: tuple[int, float] | None = None
        self.reports = 0
        self.offset = 0  # of what has been read, in bytes
        self.rest = b""
        self._stride = 1

    def add(self, row: dict[str, Any]) -> None:
        index = row["index"]
        x = self.base + index + 1
        for name, value in flat_items(row["metrics"]):
            y = value if type(value) is float else number(value)
            if y is None:
                continue
            curve = self.curves.get(name)
            if curve is None:
                if len(self.curves) >= METRICS:
                    continue
                curve = self.curves[name] = BucketedCurve()
            curve.add(x, y)
        self.last = index, float(row["time"])
        if self.reports % self._stride == 0:
            self.times.append(self.last)
            if len(self.times) >= 2 * BUCKETS:
                self.times = self.times[::2]
                self._stride *= 2
        self.reports += 1

    @property
    def seen(self) -> int:
        """Bytes that were read, with the beginning of a line that has not ended yet."""
        return self.offset + len(self.rest)

    @property
    def known_times(self) -> list[tuple[int, float]]:
        """For the ledger: where a stretch of reports begins and ends counts, and hardly what is between."""
        return self.times if self.last is None or self.times[-1:] == [self.last] else [*self.times, self.last]


class CurveIndex:
    """The curves of one run, with what has been read so far. Used by several threads."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._attempts: dict[int, AttemptCurves] = {}
        self._samples: dict[int, AttemptCurves] = {}
        self._sizes: dict[int, int] = {}

    def advance(self, starts: Sequence[AttemptStarted], within_s: float) -> float:
        """Read what is new, for about so long. The share of the reports that has been read by now, up to 1."""
        deadline = time.monotonic() + within_s
        starts = starts[-ATTEMPTS:]
        with self._lock:
            done = whole = 0
            for started in starts:
                attempt = self._attempts.setdefault(started.attempt_number, AttemptCurves(started.base))
                size = self._run.reports_size(started.attempt_number)
                if size < attempt.seen:  # it was replaced
                    attempt = self._attempts[started.attempt_number] = AttemptCurves(started.base)
                self._sizes[started.attempt_number] = size
                if attempt.seen < size:
                    self._read(started.attempt_number, attempt, size, deadline)
                done, whole = done + min(attempt.seen, size), whole + size
            return 1.0 if done >= whole else done / whole

    def is_large(self, starts: Sequence[AttemptStarted]) -> bool:
        """Whether so much is unread that a page should not wait for a look."""
        unread = 0
        for started in starts[-ATTEMPTS:]:
            attempt = self._attempts.get(started.attempt_number)
            if attempt is None or not attempt.seen:
                unread += self._run.reports_size(started.attempt_number)
        return unread > _BIG

    def attempts(self) -> dict[int, AttemptCurves]:
        """What is known of each: all of it, or a sample while most is unread."""
        with self._lock:
            found = {}
            for attempt_number, attempt in self._attempts.items():
                sample = self._samples.get(attempt_number)
                is_read = attempt.seen >= self._sizes.get(attempt_number, 0)
                found[attempt_number] = attempt if sample is None or is_read else sample
            return found

    def _read(self, attempt_number: int, attempt: AttemptCurves, size: int, deadline: float) -> None:
        if (
            size - attempt.offset > _BIG
            and attempt_number not in self._samples
            and not self._run.location.takes_uploads
        ):
            self._samples[attempt_number] = self._sample(attempt_number, attempt.base, size)
        count = 0
        for piece in self._run.report_bytes(attempt_number, attempt.seen):
            *lines, rest = (attempt.rest + piece).split(b"\n")
            for line in lines:
                row = parse_line(line)
                if row is not None:
                    attempt.add(row)
                attempt.offset += len(line) + 1
            attempt.rest = rest
            count += len(lines)
            if count >= _PIECE_LINES:
                count = 0
                if time.monotonic() > deadline:
                    return
        if attempt.seen >= size:
            row = parse_line(attempt.rest)
            if row is not None:  # a file that another tool has written may end without a newline
                attempt.add(row)
                attempt.offset, attempt.rest = attempt.offset + len(attempt.rest), b""

    def _sample(self, attempt_number: int, base: int, size: int) -> AttemptCurves:
        sample = AttemptCurves(base)
        for line in self._sampled_lines(attempt_number, size):
            row = parse_line(line)
            if row is not None:
                sample.add(row)
        return sample

    def _sampled_lines(self, attempt_number: int, size: int) -> Iterator[bytes]:
        for place in range(_SAMPLES):
            piece = next(iter(self._run.report_bytes(attempt_number, size * place // _SAMPLES)), b"")
            lines = piece.split(b"\n")
            if len(lines) > 2:
                yield lines[1 if place else 0]
        yield from (
            line for line, _ in zip(self._run.reports_backwards(attempt_number), range(2), strict=False) if line
        )
