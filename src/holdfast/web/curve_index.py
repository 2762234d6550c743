"""Curves of a run with any number of reports, in bounded memory: the least and greatest value of each bucket of
reports.

Reports are read once, a slice at a time, so that no request takes long. Until all of them are read, a sample of lines
from the whole file stands for the rest. Each look continues where the last one ended. The more curves a run has, the
fewer buckets each of them gets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from holdfast.core.run.events import AttemptStarted
from holdfast.runs.stored_run import StoredRun
from holdfast.store.metrics import parse_line
from holdfast.store.parallel import in_parallel
from holdfast.web.bucketed_curve import BUCKET_BYTES, BUCKETS, AttemptCurves

ATTEMPTS = 200  # the last ones
ALL_BUCKETS = 120_000  # of all curves of a run together; each curve has at least LEAST_BUCKETS
LEAST_BUCKETS = 8
_SAMPLES = 400
_SAMPLING_S = 1.0  # additional time of a request, for samples of all attempts
_PIECE_LINES = 2_000  # read between two looks at the clock
_BIG = 4 << 20  # bytes; fewer are read quickly
_STILL_WRITTEN = 2  # the last attempts: reports of a killed one may arrive late


class CurveIndex:
    """The curves of one run, as far as they have been read. Thread-safe."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._attempts: dict[int, AttemptCurves] = {}
        self._samples: dict[int, AttemptCurves] = {}
        self._sizes: dict[int, int] = {}
        self._complete: set[int] = set()  # attempts that were read and have ended

    def advance(self, starts: Sequence[AttemptStarted], within_s: float, run: StoredRun | None = None) -> float:
        """Read new reports, for about this long. Returns the share of the reports that has been read, from 0 to 1.
        ``run``: the run as it was opened for this look."""
        deadline = time.monotonic() + within_s
        starts = starts[-ATTEMPTS:]
        with self._lock:
            self._run = run or self._run
            self._look_at_sizes(starts)
            done = whole = 0
            for started in starts:
                number = started.attempt_number
                attempt = self._attempts.setdefault(number, AttemptCurves(started.base))
                size = self._sizes[number]
                if size < attempt.seen:  # the file was replaced
                    attempt = self._attempts[number] = AttemptCurves(started.base)
                if attempt.seen < size:
                    self._read(number, attempt, size, deadline)
                if attempt.seen >= size:
                    self._samples.pop(number, None)
                self._share_buckets()
                done, whole = done + min(attempt.seen, size), whole + size
            ended = [started.attempt_number for started in starts[:-_STILL_WRITTEN]]
            self._complete = {number for number in ended if self._attempts[number].seen >= self._sizes[number]}
            return 1.0 if done >= whole else done / whole

    def attempts(self) -> dict[int, AttemptCurves]:
        """The curves of each attempt: what has been read, or a sample while most is unread."""
        with self._lock:
            return {number: self._samples.get(number, attempt) for number, attempt in self._attempts.items()}

    @property
    def size(self) -> int:
        """The bytes that all buckets take."""
        with self._lock:
            return sum(curve.count for one in self._all() for curve in one.curves.values()) * BUCKET_BYTES

    def _all(self) -> list[AttemptCurves]:
        return [*self._attempts.values(), *self._samples.values()]

    def _look_at_sizes(self, starts: Sequence[AttemptStarted]) -> None:
        """On an object store each size is a request. Attempts that are not in the list any more are dropped."""
        numbers = [started.attempt_number for started in starts]
        for known in (self._attempts, self._samples, self._sizes):
            for gone in known.keys() - set(numbers):
                known.pop(gone)
        asked = [number for number in numbers if number not in self._complete]
        self._sizes |= dict(zip(asked, in_parallel(self._run.reports_size, asked), strict=True))

    def _share_buckets(self) -> None:
        count = sum(len(one.curves) for one in self._all())
        limit = max(LEAST_BUCKETS, min(BUCKETS, ALL_BUCKETS // (2 * max(1, count))))
        for one in self._all():
            one.fit(limit)

    def _read(self, attempt_number: int, attempt: AttemptCurves, size: int, deadline: float) -> None:
        is_here = bool(self._run.location.directory_here())  # otherwise each sample would be a request
        is_big = size - attempt.offset > _BIG and time.monotonic() < deadline + _SAMPLING_S
        if is_big and is_here and attempt_number not in self._samples:
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
            if row is not None:  # a file that another tool wrote may end without a newline
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
