"""The ledgers of real runs, held against their journals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast.runs.ledger import Ledger
from holdfast.runs.stored_experiment import load
from holdfast.runs.stored_run import StoredRun
from holdfast.store import journal
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.metrics import read_metrics
from support.driver.ledger_model import check_sum
from support.repository import SUPPORT

JOB = SUPPORT / "faults" / "job.py"
PATIENCE_S = 120.0


def check_run(root: Path) -> tuple[Ledger, list[Record]]:
    """The ledger of a run that has ended, held against the journal's own times."""
    ledger = load(root).ledger
    records, damage = journal.read(RunLayout(root))
    check_sum(ledger)
    assert not damage
    first = next(record.time for record in records if record.kind == "DriverStarted")
    assert records[-1].kind == "RunEnded"
    assert ledger.wall_clock_s == records[-1].time - first
    return ledger, records


def dies_once() -> None:
    """Saves every third step, and is killed after its fifth: steps 4 and 5 are repeated."""
    checkpoint = train.get_checkpoint()
    done = int(Path(checkpoint.path, "step").read_text()) if checkpoint else 0
    for step in range(done + 1, 9):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            saved = train.Checkpoint.from_directory(directory) if step % 3 == 0 else None
            train.report({"step": step}, checkpoint=saved)
        if step == 5 and checkpoint is None:
            train.collective.barrier()
            if train.get_context().get_world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


def test_a_worker_is_killed(tmp_path: Path) -> None:
    result = train.DataParallelTrainer(
        dies_once,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run", storage_path=str(tmp_path), verbose=0, failure_config=train.FailureConfig(max_failures=1)
        ),
    ).fit()
    ledger, records = check_run(tmp_path / "run")
    assert result.ledger == ledger
    (failure,) = ledger.failures
    assert failure.time in [record.time for record in records if record.kind == "WorkerFailed"]
    assert (failure.attempt_number, failure.rank, failure.kind) == (1, 1, "crash")
    assert failure.recovered_s is not None
    assert failure.recovered_s > ledger.recovering_s > 0
    assert ledger.productive_s > 0
    assert ledger.repeated_s > 0
    assert (ledger.down_s, ledger.waiting_s) == (0, 0)


def start(storage: Path, **config: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(JOB), str(storage), "run", json.dumps(config)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after_commit(process: subprocess.Popen[str], storage: Path, report: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    manifests = storage / "run" / "checkpoints"
    while not any(int(path.stem.removeprefix("checkpoint_")) >= report for path in manifests.glob("*.json")):
        assert time.monotonic() < deadline, f"no checkpoint for report {report}"
        time.sleep(0.005)
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def test_drivers_and_workers_are_killed(tmp_path: Path) -> None:
    faults = {"max_failures": 2, "raise_at": [4, 15]}
    # Workers run ahead of the commits. They wait, so that the next failure, and the end, are the next driver's.
    kill_after_commit(start(tmp_path, **faults, wait_at=12), tmp_path, 8)
    killed = load(tmp_path / "run").ledger
    check_sum(killed)
    assert killed.down_s == 0
    kill_after_commit(start(tmp_path, **faults, wait_at=30), tmp_path, 22)
    last = start(tmp_path, **faults, verbose=1)
    _, errors = last.communicate(timeout=PATIENCE_S)
    assert last.returncode == 0, errors
    ledger, records = check_run(tmp_path / "run")
    assert ledger.summary() in errors.splitlines()
    assert [f.kind for f in ledger.failures] == ["user error", "user error"]
    assert all(f.recovered_s for f in ledger.failures)
    assert ledger.productive_s > killed.productive_s > 0
    reports = [read_metrics(RunLayout(tmp_path / "run"), attempt_number, 0)[0] for attempt_number in range(1, 6)]
    found_later = -1  # by the next driver: no sign that the last one lived
    told = [r for r in records if r.kind != "RunConfigured" and r.body.get("index") != found_later]
    signs = [r.time for r in told] + [row["time"] for rows in reports for row in rows]
    starts = [r.time for r in records if r.kind == "DriverStarted"]
    gaps = [start - max(sign for sign in signs if sign < start) for start in starts[1:]]
    assert len(gaps) == 2
    assert ledger.down_s == sum(gaps)


def test_metrics_that_are_damaged_or_gone(tmp_path: Path) -> None:
    process = start(tmp_path, steps=10)
    process.communicate(timeout=PATIENCE_S)
    whole, _ = check_run(tmp_path / "run")
    metrics = tmp_path / "run" / "metrics" / "attempt-0001" / "rank-0.jsonl"
    data = metrics.read_bytes()
    metrics.write_bytes(data[: len(data) // 2])
    half, _ = check_run(tmp_path / "run")
    metrics.unlink()
    none, _ = check_run(tmp_path / "run")
    assert whole.wall_clock_s == half.wall_clock_s == none.wall_clock_s
    assert whole.productive_s > half.productive_s > none.productive_s == 0


def show(run: Path, *options: str) -> str:
    command = [sys.executable, "-m", "holdfast", "show", str(run), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout


def test_the_command_line_shows_it(tmp_path: Path) -> None:
    process = start(tmp_path, steps=6, raise_at=[3], max_failures=1)
    process.communicate(timeout=PATIENCE_S)
    ledger, _ = check_run(tmp_path / "run")
    (failure,) = ledger.failures
    assert f"time        {ledger.summary()}" in show(tmp_path / "run").splitlines()
    shown = json.loads(show(tmp_path / "run", "--json"))["ledger"]
    assert shown["goodput"] == ledger.goodput
    assert {part: shown[f"{part}_s"] for part in ledger.parts} == ledger.parts
    assert [f["recovered_s"] for f in shown["failures"]] == [failure.recovered_s]


def test_the_command_line_does_not_read_for_long(tmp_path: Path) -> None:
    process = start(tmp_path, steps=6)
    process.communicate(timeout=PATIENCE_S)
    records, _ = journal.read(RunLayout(tmp_path / "run"))
    found = StoredRun(Location.parse("run", tmp_path / "run")).read()
    assert found.records == records
    assert found.quick_ledger() == found.ledger
    assert found.quick_ledger(most=5) == found.ledger  # from the edges of its attempts
