"""The journal of a long run with many interruptions: how long a driver takes to read it, and what the stalls cost.

The interruptions are as many as Llama 3 had: 419 in 54 days. They come at random moments of a virtual clock. The
journal is what a driver would have written, on disk, and the account of its time is the product's own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, RunSpec
from holdfast.runs import ledger
from holdfast.runs.past import read_past
from holdfast.store import journal
from holdfast.store.journal import JournalFile
from holdfast.store.layout import RunLayout

DAYS, INTERRUPTIONS = 54, 419
REPORT_EVERY_S, CHECKPOINT_EVERY_S = 60.0, 300.0
Entry = tuple[float, ev.Event]


def events(workers: int, nodes: int, stall_s: float, reports: dict[int, list[tuple[int, float]]]) -> Iterator[Entry]:
    """With the time of each; ``reports`` gets those of rank 0."""
    rng = random.Random(3)
    end = DAYS * 86400.0
    failures = sorted(rng.uniform(0.0, end) for _ in range(INTERRUPTIONS))
    leased = tuple(f"node-{number:04d}@machine-{number:04d}" for number in range(nodes))
    per_checkpoint = round(CHECKPOINT_EVERY_S / REPORT_EVERY_S)
    now, base, resume = 0.0, 0, None
    yield now, ev.DriverStarted(1, RunSpec(num_workers=workers, max_failures=-1, num_to_keep=2, lease_s=12.0))
    for attempt_number, fails in enumerate([*failures, end], start=1):
        now = max(now, min(fails, now + stall_s)) if attempt_number == 1 else now + stall_s
        yield now, ev.AttemptStarted(attempt_number, workers, resume, base, leased)
        made = reports.setdefault(attempt_number, [])
        began, index = base, 0
        while now + REPORT_EVERY_S <= fails:
            now += REPORT_EVERY_S
            made.append((index, now))
            index += 1
            if index % per_checkpoint == 0:
                base, resume = began + index, f"checkpoint_{began + index:06d}"
                yield now, ev.Committed(CheckpointRecord(resume, base), attempt_number, index - 1)
        now = max(now, fails)
        if fails < end:
            rank = rng.randrange(workers)
            yield now, ev.WorkerFailed(attempt_number, rank, Evidence(signal=9), f"node-{rank * nodes // workers:04d}")


def replay(workers: int, nodes: int, work: Path, stalls: dict[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {"goodput": {}}
    for name, stall_s in stalls.items():
        layout, reports = RunLayout(work / f"history-{name}"), {}
        layout.root.mkdir()
        writer = JournalFile.open(layout, 1)[0]
        for at, event in events(workers, nodes, stall_s, reports):
            writer.append([ev.journalled(event)], at, sync=False)
        writer.close()
        began = time.process_time()
        records = journal.read(layout)[0]
        past = read_past(records)
        found["replay_s"] = time.process_time() - began
        assert len(past.attempts) == INTERRUPTIONS + 1
        found["replay_records"] = len(records)
        found["replay_mb"] = sum(f.stat().st_size for f in layout.root.rglob("*") if f.is_file()) / 1e6
        account = ledger.account(records, reports)
        found["goodput"][name] = account.goodput
    return found
