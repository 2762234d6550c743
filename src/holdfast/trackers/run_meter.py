"""The numbers of a run while it runs, as its driver sees them. They start at zero with the driver, as counters do.

As in the ledger, time counts as productive from one report of rank 0 to the next in the same attempt, and work that a
restart discards is subtracted.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.core.run import events as ev
from holdfast.core.run.state import Failure, Phase, RunState

_BUCKETS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, math.inf)


class Meter(Collector):
    """The driver's loop passes events to it, and another thread reads the numbers."""

    def __init__(self, run: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._state = RunState()
        self._number = 0  # number of reports in the surviving history
        self._made = self._lost = self._committed = self._warnings = 0
        self._failure: Failure | None = None  # the last one
        self._failures: Counter[str] = Counter()
        self._restarts: Counter[str] = Counter()
        self._durations = [0] * len(_BUCKETS)  # staged bytes of each checkpoint until its commit
        self._seconds = 0.0  # the sum of these
        self._staged: dict[tuple[int, int], float] = {}  # pending checkpoints, with the time since when
        self._durable_at: float | None = None
        self._cause = ""  # why the next attempt starts; empty for the first
        self._last_report: float | None = None  # in the current attempt
        self._productive = 0.0
        self._productive_at: dict[int, float] = {}  # by the report numbers that an attempt may resume from

    def saw(self, event: ev.Event, before: RunState, after: RunState) -> None:
        with self._lock:
            now = self._clock()
            self._state = after
            if after.phase is not Phase.STOPPING:  # while the attempt ends, another cause may be found
                self._count(after.failure)
            match event:
                case ev.AttemptStarted(base=base):
                    self._start_attempt(base)
                case ev.HandedOver(reason=reason):
                    self._cause = reason.value
                case ev.Committed():
                    self._commit(event, after, now)
                case _:
                    self._progress(after, now)
            if after.unsaved != before.unsaved:
                self._track(after, now)

    def _count(self, failure: Failure | None) -> None:
        if failure is not None and failure is not self._failure:
            self._cause = failure.kind.value
            self._failures[self._cause] += 1
        self._failure = failure

    def warned(self, text: str) -> None:
        with self._lock:
            self._warnings += 1

    def collect(self) -> list[Metric]:
        with self._lock:
            return list(self._families())

    def _start_attempt(self, base: int) -> None:
        if self._cause:
            self._restarts[self._cause] += 1
            self._lost += max(0, self._number - base)
        self._cause, self._last_report, self._number = "", None, base
        self._productive_at.setdefault(base, self._productive_before(base))
        self._productive = self._productive_at[base]
        self._productive_at = {n: s for n, s in self._productive_at.items() if n <= base}

    def _productive_before(self, report: int) -> float:
        known = [number for number in self._productive_at if number <= report]
        return self._productive_at[max(known)] if known else 0.0

    def _progress(self, after: RunState, now: float) -> None:
        number = after.base + after.ranks[0].reports if after.ranks else 0
        if number <= self._number or after.phase is not Phase.RUNNING:
            return
        if self._last_report is not None:
            self._productive += now - self._last_report
        self._made += number - self._number
        self._number, self._last_report = number, now
        if after.ranks[0].reports - 1 in after.pending:
            self._productive_at[number] = self._productive

    def _commit(self, event: ev.Committed, after: RunState, now: float) -> None:
        since = self._staged.pop((event.attempt_number, event.index), None)
        if since is not None:
            self._durations[bisect_left(_BUCKETS, now - since)] += 1
            self._seconds += now - since
        if event.index >= 0:
            self._committed += 1
            self._durable_at = time.time()
        kept = {checkpoint.report for checkpoint in after.checkpoints}
        newest = max(kept, default=0)
        self._productive_at = {n: s for n, s in self._productive_at.items() if n in kept or n >= newest}

    def _track(self, after: RunState, now: float) -> None:
        self._staged = {
            (p.attempt_number, p.index): self._staged.get((p.attempt_number, p.index), now) for p in after.unsaved
        }

    def _families(self) -> Iterator[Metric]:
        state, now = self._state, self._clock()
        uptime = now - self._began
        yield self._gauge("report_number", "Reports in the surviving history.", self._number)
        yield self._counter("reports_total", "Reports of rank 0, including those that a restart discarded.", self._made)
        yield self._counter("steps_lost_total", "Reports that restarts discarded.", self._lost)
        yield self._counter("failures_total", "Failures of attempts.", self._failures, "cause")
        yield self._counter("restarts_total", "Attempts after the first.", self._restarts, "cause")
        yield self._counter("warnings_total", "Warnings.", self._warnings)
        yield self._counter("checkpoints_total", "Committed checkpoints.", self._committed)
        yield self._histogram("checkpoint_seconds", "From the first staged file to the commit.")
        yield self._gauge("checkpoints_waiting", "Pending checkpoints.", len(self._staged))
        lag = now - min(self._staged.values(), default=now)
        yield self._gauge("checkpoint_lag_seconds", "How long the oldest pending checkpoint has been waiting.", lag)
        if self._durable_at is not None:
            help = "Time of the last commit, in UNIX seconds."
            yield self._gauge("last_checkpoint_timestamp_seconds", help, self._durable_at)
        yield self._gauge("storage_stalled", "1 while training waits for storage.", int(state.stalled))
        yield self._gauge("attempt", "The number of the current attempt.", state.attempt_number)
        yield self._gauge("world_size", "Workers of the current attempt.", state.durable.attempt_size)
        phases = {phase.value: int(phase is state.phase) for phase in Phase}
        yield self._gauge("phase", "1 for the current phase.", phases, "phase")
        yield self._counter("uptime_seconds_total", "Seconds since this driver started.", uptime)
        yield self._counter("productive_seconds_total", "The part of it that was productive.", self._productive)
        yield self._gauge("goodput_ratio", "The productive share.", self._productive / uptime if uptime > 0 else 0.0)

    def _gauge(self, name: str, help: str, value: float | Mapping[str, int], by: str = "") -> Metric:
        return self._filled(GaugeMetricFamily(f"holdfast_{name}", help, labels=["run", by] if by else ["run"]), value)

    def _counter(self, name: str, help: str, value: float | Mapping[str, int], by: str = "") -> Metric:
        return self._filled(CounterMetricFamily(f"holdfast_{name}", help, labels=["run", by] if by else ["run"]), value)

    def _filled(
        self, family: GaugeMetricFamily | CounterMetricFamily, value: float | Mapping[str, int]
    ) -> GaugeMetricFamily | CounterMetricFamily:
        """``value`` is one number, or a number for each value of the second label."""
        if isinstance(value, Mapping):
            for key, number in sorted(value.items()):
                family.add_metric([self._run, key], number)
        else:
            family.add_metric([self._run], value)
        return family

    def _histogram(self, name: str, help: str) -> Metric:
        below = accumulate(self._durations)
        buckets = [
            ("+Inf" if bound == math.inf else str(bound), count) for bound, count in zip(_BUCKETS, below, strict=True)
        ]
        family = HistogramMetricFamily(f"holdfast_{name}", help, labels=["run"])
        family.add_metric([self._run], buckets, self._seconds)
        return family
