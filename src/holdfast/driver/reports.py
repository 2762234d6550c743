"""The reports of all ranks: written down as they come, and brought together where the k-th of each is needed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.store.layout import RunLayout
from holdfast.store.metrics import MetricsWriter, parse_line
from holdfast.wire.messages import Reports

# (the report's index in its group, the metrics by rank, the id of its checkpoint)
Callback = Callable[[int, list[dict[str, Any]], str | None], None]


class ReportBook:
    """Keeps a rank's lines only as long as a checkpoint or a callback may still need them."""

    def __init__(self, layout: RunLayout, on_report: Callback | None) -> None:
        self._writer = MetricsWriter(layout)
        self._on_report = on_report
        self.begin(0, 0)

    def begin(self, generation: int, world_size: int) -> None:
        self._generation = generation
        self._lines: list[deque[bytes]] = [deque() for _ in range(world_size)]
        self._first = [0] * world_size  # the index of each rank's first line that is kept
        self._counts: list[float] = [0] * world_size  # reports made; endless for a rank that has returned
        self._called = 0  # reports already given to the callback
        self._directories: dict[int, str] = {}  # committed checkpoints that the callback is still to be told of

    def add(self, reports: Reports) -> bytes | None:
        """Write them down; rank 0's newest line, if it is among them."""
        self._writer.append(reports.generation, reports.rank, b"".join(r.line for r in reports.reports))
        rank = reports.rank
        if reports.generation != self._generation:
            return None
        self._counts[rank] = reports.reports[-1].index + 1
        if rank == 0 or self._on_report is not None:
            self._lines[rank].extend(r.line for r in reports.reports)
        return reports.reports[-1].line if rank == 0 else None

    def returned(self, rank: int) -> None:
        self._counts[rank] = math.inf

    def metrics_of(self, index: int) -> dict[str, Any]:
        """Rank 0's metrics of its report ``index``: the ones that a checkpoint carries."""
        return self._metrics(0, index)

    def committed(self, index: int, directory: str) -> None:
        if self._on_report is not None:
            self._directories[index] = directory

    def call_back(self, first_pending: float) -> None:
        """Tell the callback, in order, of each report that all ranks made and whose checkpoint, if any, is durable."""
        if not self._lines:
            return
        if self._on_report is not None:
            made = max(first + len(lines) for first, lines in zip(self._first, self._lines, strict=True))
            while self._called < min(made, *self._counts, first_pending):
                index, self._called = self._called, self._called + 1
                metrics = [self._metrics(rank, index) for rank in range(len(self._lines))]
                self._on_report(index, metrics, self._directories.pop(index, None))
        self._forget(min(first_pending, *self._counts, self._called if self._on_report else math.inf))

    def _metrics(self, rank: int, index: int) -> dict[str, Any]:
        at = index - self._first[rank]
        return metrics_in(self._lines[rank][at]) if 0 <= at < len(self._lines[rank]) else {}

    def _forget(self, before: float) -> None:
        for rank, lines in enumerate(self._lines):
            while lines and self._first[rank] < before:
                lines.popleft()
                self._first[rank] += 1

    def sync(self) -> None:
        self._writer.sync()

    def close(self, sync: bool = True) -> None:
        self._writer.close(sync)


def metrics_in(line: bytes) -> dict[str, Any]:
    parsed = parse_line(line)
    return parsed["metrics"] if parsed else {}
