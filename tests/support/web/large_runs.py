"""Stored runs and searches of any size, written with Holdfast's own writers and without training anything."""

from __future__ import annotations

import itertools
import math
import random
import time
import uuid
from pathlib import Path
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.records import entry_of
from holdfast.core.failures import Evidence
from holdfast.core.run import events as run_events
from holdfast.core.run.state import CheckpointRecord, Outcome, RunSpec
from holdfast.store import metrics
from holdfast.store.disk_run import DiskRun
from holdfast.store.layout import RunLayout
from holdfast.store.manifests import Manifest, manifest_line


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
    ended = time.time()
    identity = {"kind": "experiment", "name": path.name, "metric": "loss", "mode": "min", "num_samples": trials}
    identity["id"] = uuid.uuid4().hex
    write_stored(path, identity, [(ended, entry_of(entry)) for entry in entries])


def write_run(path: Path, reports: int, attempts: int = 3, commits: int = 0, log_lines: int = 0) -> None:
    """A run that has finished, with that many reports of three metrics. With ``commits`` of checkpoints, of which the
    last three were kept, each attempt but the last one was killed, and resumed from a checkpoint. With ``log_lines`` of
    each rank in each attempt."""
    now = time.time() - reports * 0.01
    layout, spec = RunLayout(path), RunSpec(num_workers=2, max_failures=10, num_to_keep=3)
    events: list[tuple[float, Any]] = [(now, run_events.DriverStarted(1, spec))]
    writer = metrics.MetricsWriter(layout)
    each = reports // attempts
    for attempt in range(1, attempts + 1):
        base = (attempt - 1) * each
        resume = checkpoint_of(base) if base and commits else None
        events.append((now + base * 0.01, run_events.AttemptStarted(attempt, 2, resume, base)))
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
        step = reports // commits if commits else reports + 1
        for report in range(base + step, base + len(lines) + 1, step):
            committed = run_events.Committed(
                CheckpointRecord(checkpoint_of(report), report), attempt, report - base - 1
            )
            events.append((now + report * 0.01, committed))
        if commits and attempt < attempts:
            killed = run_events.WorkerFailed(attempt, 1, Evidence(signal=9), "", base + len(lines))
            events.append((now + (base + len(lines)) * 0.01, killed))
        for rank in range(2) if log_lines else ():
            log = path / "logs" / f"attempt-{attempt:04d}" / f"rank-{rank}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(
                "".join(f"step {line}: the loss of this step is {line / 7:.6f}\n" for line in range(log_lines))
            )
    writer.close()
    for event in [event for _, event in events if isinstance(event, run_events.Committed)][-3:]:
        _write_checkpoint(layout, event.record, event.attempt_number)
    events.append((now + reports * 0.01, run_events.RunEnded(Outcome.FINISHED, "", True)))
    entries = [(time, run_events.journalled(event)) for time, event in events]
    write_stored(path, {"name": path.name, "trainer": "DataParallelTrainer", "id": uuid.uuid4().hex}, entries)


def write_hostile_search(path: Path, text: str) -> None:
    """With that text wherever somebody else may have chosen it: names, values, errors and reasons."""
    entries: list[Any] = [ev.Began(1)]
    for number in range(6):
        id, config = f"{number}", {text: number / 10, "lr": f"{text}{number}"}
        entries += [ev.Added(id, config, config, f"{text}{number}", f"trial_{number}"), ev.Started(id, 1.0)]
        answer = ev.Answer("STOP", f"{text} is not good enough") if number == 1 else None
        entries.append(ev.Reported(id, 1, {text: float(number)}, None, 1.0, answer))
        if number == 2:
            entries.append(ev.Exploited(id, "0", 1, {**config, text: 7}))
            entries.append(ev.Reported(id, 2, {text: 0.5}, None, 2.0, None))
        entries.append(ev.Ended(id, f"ValueError: {text}" if number > 3 else "", text if number == 1 else ""))
    entries.append(ev.Over())
    identity = {"kind": "experiment", "name": text, "metric": text, "mode": "min", "num_samples": 6, "trainable": text}
    write_stored(path, identity, [(time.time(), entry_of(entry)) for entry in entries])


def write_hostile_nodes(path: Path, text: str) -> None:
    """A run whose nodes have such names, and of whose ranks one failed with such words."""
    spec, seen = RunSpec(num_workers=1, max_failures=10), Evidence(exception=text, message=text)
    events = [
        run_events.DriverStarted(1, spec),
        run_events.AttemptStarted(1, 1, None, 0, leased=(text, f"{text}2")),
        run_events.WorkerFailed(1, 0, seen, text, 0),
        run_events.AttemptStarted(2, 1, None, 0, leased=(f"{text}2",)),
        run_events.RunEnded(Outcome.FAILED, text, True),
    ]
    entries = [(1000.0 + number, run_events.journalled(event)) for number, event in enumerate(events)]
    write_stored(path, {"name": text, "trainer": text, "train_loop_config": {text: text}}, entries)


def checkpoint_of(report: int) -> str:
    return f"checkpoint_{report:06d}"


def _write_checkpoint(layout: RunLayout, record: CheckpointRecord, attempt: int) -> None:
    directory = layout.checkpoints_dir / record.id
    directory.mkdir(parents=True)
    manifest = Manifest(0, record.id, attempt, 0, record.report, 2, time.time(), {"loss": 0.5}, [])
    (layout.checkpoints_dir / f"{record.id}.json").write_bytes(manifest_line(manifest))


def write_stored(path: Path, identity: dict[str, Any], entries: list[tuple[float, Any]]) -> None:
    """Entries with their times."""
    path.mkdir(parents=True, exist_ok=True)
    store = DiskRun(RunLayout(path))
    store.write_identity(identity)
    lease = store.acquire()
    try:
        journal, _, _ = lease.open_journal()
        for now, together in itertools.groupby(entries, key=lambda entry: entry[0]):
            journal.append([entry for _, entry in together], now, sync=False)
        journal.close()
    finally:
        lease.release()
