"""Stored runs and searches of any size, written with Holdfast's own writers and without training anything."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.records import entry_of
from holdfast.core.run import events as run_events
from holdfast.core.run.state import Outcome, RunSpec
from holdfast.store import metrics
from holdfast.store.disk_run import DiskRun
from holdfast.store.layout import RunLayout


def write_search(path: Path, trials: int, results: int = 5, seed: int = 0, exploits: bool = False) -> None:
    """A search over three parameters that is over; every 50th trial has failed, and many were stopped early."""
    rng, now = random.Random(seed), time.time() - trials
    entries: list[Any] = [ev.Began(1)]
    for number in range(trials):
        id = f"{number:05d}"
        lr, width, act = 10 ** rng.uniform(-4, -1), rng.choice([32, 64, 128, 256]), rng.choice(["relu", "gelu", "tanh"])
        config = {"lr": lr, "width": width, "act": act, "seed": number}
        params = {"lr": lr, "width": width, "act": act}
        entries += [ev.Added(id, config, params, f"trial_{id}", f"trial_{id}"), ev.Started(id, now + number)]
        best = (math.log10(lr) + 2.5) ** 2 + 20 / width + (act == "tanh") * 0.3
        if exploits and number:
            donor = f"{(number - 1) // 2:05d}"
            entries.append(ev.Exploited(id, donor, 1, {**config, "lr": lr / 2}))
        fails = number % 50 == 49
        until = results if number % 3 else max(1, results // 2)
        for step in range(1, (until if not fails else 1) + 1):
            loss = best + 2 / step + rng.gauss(0, 0.02)
            stops = step == until and until < results and not fails
            answer = ev.Answer("STOP", "AsyncHyperBand: below the median at milestone 2") if stops else None
            entries.append(ev.Reported(id, step, {"loss": loss, "step": step}, None, now + number + step / 10, answer))
        entries.append(ev.Ended(id, "ValueError: diverged" if fails else "", "" if until == results else "stopped"))
    entries.append(ev.Over())
    identity = {"kind": "experiment", "name": path.name, "metric": "loss", "mode": "min", "num_samples": trials}
    _write(path, identity, [entry_of(entry) for entry in entries])


def write_run(path: Path, reports: int, attempts: int = 3) -> None:
    """A run that has finished, with that many reports of three metrics."""
    now = time.time() - reports * 0.01
    layout, spec = RunLayout(path), RunSpec(num_workers=2, max_failures=10)
    events: list[Any] = [run_events.DriverStarted(1, spec)]
    writer = metrics.MetricsWriter(layout)
    each = reports // attempts
    for attempt in range(1, attempts + 1):
        base = (attempt - 1) * each
        events.append(run_events.AttemptStarted(attempt, 2, None, base))
        lines = []
        for index in range(each if attempt < attempts else reports - base):
            x = base + index + 1
            values = {
                "step": x,
                "loss": math.exp(-x / reports * 4) + math.sin(x) / 50,
                "lr": 0.1 * (1 - x / reports / 2),
            }
            lines.append(metrics.line(index, now + x * 0.01, values))
        path.mkdir(parents=True, exist_ok=True)
        writer.append(attempt, 0, b"".join(lines))
    writer.close()
    events.append(run_events.RunEnded(Outcome.FINISHED, "", True))
    _write(path, {"name": path.name, "trainer": "DataParallelTrainer"}, [_entry(event) for event in events])


def _entry(event: Any) -> tuple[str, dict[str, Any]]:
    return run_events.journalled(event)


def _write(path: Path, identity: dict[str, Any], entries: list[Any]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    store = DiskRun(RunLayout(path))
    store.write_identity(identity)
    lease = store.acquire()
    try:
        journal, _, _ = lease.open_journal()
        for start in range(0, len(entries), 5000):
            journal.append(entries[start : start + 5000], time.time(), sync=False)
        journal.close()
    finally:
        lease.release()
