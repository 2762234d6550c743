"""The reports of all ranks. They are recorded as they arrive, and the k-th reports of all ranks are combined when they
are needed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.store.metrics import parse_line
from holdfast.wire.messages import Reports

from .effects import CallBack, Effect, WriteReports

# (the report's number in the run, the metrics by rank, the id of its checkpoint)
Callback = Callable[[int, list[dict[str, Any]], str | None], None]


class ReportBook:
    """Keeps the lines of a rank only while a checkpoint or a callback may need them. This can be longer than its
    attempt, if a checkpoint is still pending."""

    def __init__(self, emit: Callable[[Effect], None], calls_back: bool) -> None:
        self._emit, self._calls_back = emit, calls_back
        self._attempts = deque([_AttemptReports(0, 0, 0, calls_back)])  # the last one is the current attempt

    def begin(self, attempt_number: int, world_size: int, base: int, rank_zero_only: bool = False) -> None:
        """``base``: the reports of the run before this attempt."""
        silent = world_size - 1 if rank_zero_only else 0
        self._attempts.append(_AttemptReports(attempt_number, world_size, base, self._calls_back, silent))

    def add(self, reports: Reports) -> bytes | None:
        """Write the reports. Returns rank 0's newest line, if it is among them."""
        lines = b"".join([r.line for r in reports.reports])
        self._emit(WriteReports(reports.attempt_number, reports.rank, lines))
        rank, attempt = reports.rank, self._attempts[-1]
        if reports.attempt_number != attempt.attempt_number:
            return None
        attempt.made(rank, reports.reports[-1].index + 1)
        if rank == 0 or self._calls_back:
            attempt.lines[rank].extend(r.line for r in reports.reports)
        return reports.reports[-1].line if rank == 0 else None

    def skip(self, attempt_number: int, rank: int, reports: int) -> None:
        """The replaced rank continues after this many reports. It may not have made all of them."""
        attempt = self._attempt(attempt_number)
        missing = 0 if attempt is None else reports - int(attempt.counts[rank])
        if attempt is not None and missing > 0:
            attempt.made(rank, reports)
            if rank == 0 or self._calls_back:
                attempt.lines[rank].extend([b""] * missing)

    def count(self, attempt_number: int, rank: int) -> float:
        """How many reports of the rank are written; infinite if it has returned or if its attempt is too old."""
        attempt = self._attempts[-1]
        return attempt.counts[rank] if attempt.attempt_number == attempt_number else math.inf

    def returned(self, rank: int) -> None:
        self._attempts[-1].made(rank, math.inf)

    def metrics_of(self, attempt_number: int, index: int) -> dict[str, Any]:
        """Rank 0's metrics of a report: the ones that a checkpoint carries."""
        attempt = self._attempt(attempt_number)
        return {} if attempt is None else attempt.metrics(0, index)

    def committed(self, attempt_number: int, index: int, id: str) -> None:
        attempt = self._attempt(attempt_number)
        if attempt is not None and self._calls_back:
            attempt.checkpoints[index] = id

    def call_back(self, first_pending: Mapping[int, int]) -> None:
        """Tell the callback, in order, of each report that all ranks made and whose checkpoint, if any, is committed.
        ``first_pending``: by attempt, the first report whose checkpoint is pending."""
        while len(self._attempts) > 1:
            attempt = self._attempts[0]
            self._tell(attempt, first_pending.get(attempt.attempt_number, math.inf))
            if attempt.attempt_number in first_pending:
                return
            self._attempts.popleft()
        attempt = self._attempts[-1]
        self._tell(attempt, first_pending.get(attempt.attempt_number, math.inf))

    def _tell(self, attempt: _AttemptReports, first_pending: float) -> None:
        """All reports that are ready. Those that are no longer needed are then forgotten."""
        told = math.inf
        if self._calls_back:
            for number, metrics, id in attempt.ready(first_pending):
                self._emit(CallBack(number, metrics, id))
            told = attempt.told
        attempt.forget(min(first_pending, told))

    def _attempt(self, attempt_number: int) -> _AttemptReports | None:
        return next((attempt for attempt in self._attempts if attempt.attempt_number == attempt_number), None)


class _AttemptReports:
    """The reports of one attempt."""

    def __init__(self, attempt_number: int, world_size: int, base: int, keeps_all: bool, silent: int = 0) -> None:
        """``keeps_all``: the lines of all ranks, not rank 0's alone. ``silent``: how many, the last, never report."""
        self.attempt_number, self._base = attempt_number, base
        self.lines: list[deque[bytes]] = [deque() for _ in range(world_size if keeps_all else min(1, world_size))]
        # Reports made, infinite for a rank that makes no more; and how many ranks have made so many
        self.counts: list[float] = [0] * (world_size - silent) + [math.inf] * silent
        self._ranks_with: dict[float, int] = {0: world_size - silent, math.inf: silent}
        self.checkpoints: dict[int, str] = {}  # committed ones that the callback is still to be told of
        self._first = [0] * len(self.lines)  # the index of each rank's first line that is kept
        self.told = 0  # reports already given to the callback

    def made(self, rank: int, count: float) -> None:
        before, self.counts[rank] = self.counts[rank], count
        self._ranks_with[count] = self._ranks_with.get(count, 0) + 1
        self._ranks_with[before] -= 1
        if not self._ranks_with[before]:
            del self._ranks_with[before]

    def metrics(self, rank: int, index: int) -> dict[str, Any]:
        if rank >= len(self.lines):
            return {}
        at = index - self._first[rank]
        return metrics_in(self.lines[rank][at]) if 0 <= at < len(self.lines[rank]) else {}

    def ready(self, first_pending: float) -> Iterator[tuple[int, list[dict[str, Any]], str | None]]:
        """The reports to tell the callback now."""
        if not self.lines:
            return
        made = max(first + len(lines) for first, lines in zip(self._first, self.lines, strict=True))
        while self.told < min(made, first_pending, *self._ranks_with):
            index, self.told = self.told, self.told + 1
            metrics = [self.metrics(rank, index) for rank in range(len(self.lines))]
            yield self._base + index + 1, metrics, self.checkpoints.pop(index, None)

    def forget(self, before: float) -> None:
        """Reports that all ranks have made and that are no longer needed."""
        before = min(before, *self._ranks_with)
        for rank, lines in enumerate(self.lines):
            while lines and self._first[rank] < before:
                lines.popleft()
                self._first[rank] += 1


def metrics_in(line: bytes) -> dict[str, Any]:
    parsed = parse_line(line)
    return parsed["metrics"] if parsed else {}
