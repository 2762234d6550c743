"""What a run lost, from a few of its reports: the same as from all of them, whatever a restart took back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import Outcome, RunSpec
from holdfast.runs.report_edges import edge_reports
from holdfast.runs.stored_run import StoredRun
from holdfast.store import metrics
from holdfast.store.disk_run import DiskRun
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location

TICK_S = 0.25


@pytest.mark.parametrize("kept", [0, 1, 2, 1_234, 4_999, 5_000, float("inf")])
def test_the_edges_of_an_attempt(tmp_path: Path, kept: float) -> None:
    run = _run(tmp_path, [(0, 5_000)])
    found = [row["index"] for row in edge_reports(run, 1, kept)]
    assert found == ([0, kept - 1, 4_999] if 0 < kept < 5_000 else [0, 4_999])


def test_an_attempt_without_reports_has_no_edges(tmp_path: Path) -> None:
    assert edge_reports(_run(tmp_path, [(0, 0)]), 1, 3) == []


@pytest.mark.parametrize("seed", range(5))
def test_the_ledger_from_edges_is_that_from_all_reports(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    attempts, reached = [], 0
    for _ in range(rng.randint(2, 6)):
        base = rng.randint(0, reached)
        attempts.append((base, rng.randint(0, 3_000)))
        reached = base + attempts[-1][1]
    found = _run(tmp_path, attempts).read()
    assert found.ledger.repeated_s > 0
    assert found.quick_ledger(most=0) == found.quick_ledger() == found.ledger


def _run(path: Path, attempts: list[tuple[int, int]]) -> StoredRun:
    """Attempts with the report that each began at, and how many it made; all but the last one fail."""
    layout, now = RunLayout(path), 1_700_000_000.0
    store, writer = DiskRun(layout), metrics.MetricsWriter(layout)
    store.write_identity({"name": path.name})
    lease = store.acquire()
    journal, _, _ = lease.open_journal()

    def tell(event: ev.Event) -> None:
        nonlocal now
        now += TICK_S
        journal.append([ev.journalled(event)], now, sync=False)

    tell(ev.DriverStarted(1, RunSpec(num_workers=1, max_failures=10)))
    for number, (base, reports) in enumerate(attempts, start=1):
        tell(ev.AttemptStarted(number, 1, None, base))
        times = [now := now + TICK_S for _ in range(reports)]
        writer.append(number, 0, b"".join(metrics.line(at, time, {"loss": at}) for at, time in enumerate(times)))
        if number < len(attempts):
            tell(ev.WorkerFailed(number, 0, Evidence(signal=9)))
    tell(ev.RunEnded(Outcome.FINISHED, "", True))
    writer.close()
    journal.close()
    lease.release()
    return StoredRun(Location.parse("run", path))
