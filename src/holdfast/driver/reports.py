"""The reports of all ranks: written down as they come, and brought together where the k-th of each is needed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.store.layout import RunLayout
from holdfast.store.metrics import MetricsWriter, parse_line
from holdfast.wire.messages import Reports

# (the report's number in the run, the metrics by rank, the id of its checkpoint)
Callback = Callable[[int, list[dict[str, Any]], str | None], None]


class ReportBook:
    """Keeps a rank's lines only as long as a checkpoint or a callback may still need them: beyond the end of its group,
    if a checkpoint of it is still on its way then."""

    def __init__(self, home: Callable[[], RunLayout], on_report: Callback | None) -> None:
        """``home`` is asked when the first report has come."""
        self._home = home
        self._writer: MetricsWriter | None = None
        self._on_report = on_report
        self._groups = deque([_Group(0, 0, 0)])  # the last is the present one

    def begin(self, generation: int, world_size: int, base: int) -> None:
        """``base``: the reports of the run that it builds upon."""
        self._groups.append(_Group(generation, world_size, base))

    def add(self, reports: Reports) -> bytes | None:
        """Write them down; rank 0's newest line, if it is among them."""
        if self._writer is None:
            self._writer = MetricsWriter(self._home())
        self._writer.append(reports.generation, reports.rank, b"".join(r.line for r in reports.reports))
        rank, group = reports.rank, self._groups[-1]
        if reports.generation != group.generation:
            return None
        group.counts[rank] = reports.reports[-1].index + 1
        if rank == 0 or self._on_report is not None:
            group.lines[rank].extend(r.line for r in reports.reports)
        return reports.reports[-1].line if rank == 0 else None

    def count(self, generation: int, rank: int) -> float:
        """How many reports of the rank are written down; endless if it has returned, or if its group is long gone."""
        group = self._groups[-1]
        return group.counts[rank] if group.generation == generation else math.inf

    def returned(self, rank: int) -> None:
        self._groups[-1].counts[rank] = math.inf

    def metrics_of(self, generation: int, index: int) -> dict[str, Any]:
        """Rank 0's metrics of a report: the ones that a checkpoint carries."""
        group = self._group(generation)
        return {} if group is None else group.metrics(0, index)

    def committed(self, generation: int, index: int, id: str) -> None:
        group = self._group(generation)
        if group is not None and self._on_report is not None:
            group.checkpoints[index] = id

    def call_back(self, first_pending: Mapping[int, int]) -> None:
        """Tell the callback, in order, of each report that all ranks made and whose checkpoint, if any, is durable.
        ``first_pending``: by generation, the first report whose checkpoint is on its way."""
        while len(self._groups) > 1:
            group = self._groups[0]
            group.tell(first_pending.get(group.generation, math.inf), self._on_report)
            if group.generation in first_pending:
                return
            self._groups.popleft()
        group = self._groups[-1]
        group.tell(first_pending.get(group.generation, math.inf), self._on_report)

    def _group(self, generation: int) -> _Group | None:
        return next((group for group in self._groups if group.generation == generation), None)

    def sync(self) -> None:
        if self._writer is not None:
            self._writer.sync()

    def close(self, sync: bool = True) -> None:
        if self._writer is not None:
            self._writer.close(sync)


class _Group:
    """What is known of the reports of one group of workers."""

    def __init__(self, generation: int, world_size: int, base: int) -> None:
        self.generation, self._base = generation, base
        self.lines: list[deque[bytes]] = [deque() for _ in range(world_size)]
        self.counts: list[float] = [0] * world_size  # reports made; endless for a rank that has returned
        self.checkpoints: dict[int, str] = {}  # committed ones that the callback is still to be told of
        self._first = [0] * world_size  # the index of each rank's first line that is kept
        self._told = 0  # reports already given to the callback

    def metrics(self, rank: int, index: int) -> dict[str, Any]:
        if rank >= len(self.lines):
            return {}
        at = index - self._first[rank]
        return metrics_in(self.lines[rank][at]) if 0 <= at < len(self.lines[rank]) else {}

    def tell(self, first_pending: float, on_report: Callback | None) -> None:
        """All that is ready; then forget what nobody needs any more."""
        if not self.lines:
            return
        if on_report is not None:
            made = max(first + len(lines) for first, lines in zip(self._first, self.lines, strict=True))
            while self._told < min(made, *self.counts, first_pending):
                index, self._told = self._told, self._told + 1
                metrics = [self.metrics(rank, index) for rank in range(len(self.lines))]
                on_report(self._base + index + 1, metrics, self.checkpoints.pop(index, None))
        self._forget(min(first_pending, *self.counts, self._told if on_report else math.inf))

    def _forget(self, before: float) -> None:
        for rank, lines in enumerate(self.lines):
            while lines and self._first[rank] < before:
                lines.popleft()
                self._first[rank] += 1


def metrics_in(line: bytes) -> dict[str, Any]:
    parsed = parse_line(line)
    return parsed["metrics"] if parsed else {}
