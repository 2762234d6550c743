"""Every second of a run is in exactly one part of its ledger, whatever happened to the run, its clock or its files."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_model import Run, runs

import holdfast.train as train
from holdfast.core import events as ev
from holdfast.core.failures import Evidence
from holdfast.core.state import Outcome, RunSpec
from holdfast.driver.history import load
from holdfast.driver.ledger import FailureEntry, Ledger, account
from holdfast.store import journal
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.metrics import read_metrics

JOB = Path(__file__).parents[1] / "faults" / "job.py"
PATIENCE_S = 60.0
KILLED = ev.WorkerFailed(1, 1, Evidence(signal=9))
FINISHED = ev.RunEnded(Outcome.FINISHED, "every rank returned")


def started(**spec: Any) -> ev.DriverStarted:
    return ev.DriverStarted(1, RunSpec(max_failures=-1, **spec))


def group(generation: int, base: int) -> ev.GroupStarted:
    return ev.GroupStarted(generation, 2, None, base)


def written(*entries: tuple[float, ev.Event]) -> list[Record]:
    return [
        Record(seq, time, type(event).__name__, msgspec.to_builtins(event))
        for seq, (time, event) in enumerate(entries, start=1)
    ]


def check_sum(ledger: Ledger) -> None:
    assert sum(ledger.parts.values()) == ledger.wall_clock_s
    assert min(ledger.parts.values()) >= 0
    assert 0 <= ledger.goodput <= 1
    assert all(f.recovered_s is None or f.recovered_s >= 0 for f in ledger.failures)


FAILED_ONCE = written(
    (100, started()), (101, group(1, 0)), (110, KILLED), (112, group(2, 2)), (120, FINISHED), (121, FINISHED)
)
ITS_REPORTS = {1: [(0, 103.0), (1, 105.0), (2, 108.0)], 2: [(0, 113.0), (1, 116.0)]}


def test_a_run_with_one_failure() -> None:
    ledger = account(FAILED_ONCE, ITS_REPORTS)
    assert ledger == Ledger(
        wall_clock_s=21,
        productive_s=2 + 3,  # report 2 of the first group, then report 2 of the second
        redone_s=3 + 2,  # report 3, behind the checkpoint; and what was done after it
        starting_s=1 + 2 + 1,
        recovering_s=2,
        finishing_s=4 + 1,
        failures=(FailureEntry(110, 1, 1, "crash", "rank 1 was killed by SIGKILL (signal 9)", 3),),
    )
    assert ledger.goodput == 5 / 21
    assert ledger.summary() == (
        "21.0 s: 24 % productive, 5.0 s redone, 4.0 s starting, 2.0 s recovering, 5.0 s finishing (1 failure)"
    )
    assert str(ledger).splitlines() == [
        "wall-clock     21.0 s  100 %",
        "productive      5.0 s   24 %",
        "redone          5.0 s   24 %",
        "starting        4.0 s   19 %",
        "recovering      2.0 s   10 %",
        "finishing       5.0 s   24 %",
        "rank 1 was killed by SIGKILL (signal 9) [crash]: 3.0 s to the next report",
    ]
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger


def test_time_without_a_driver() -> None:
    """The driver's last sign of life is a report; what its successor found in storage is no sign of it."""
    records = [
        *written((100, started()), (101, group(1, 0)), (104, ev.StopAsked())),
        *written((149, started()), (150, ev.Damaged("x", "gone")), (150, started()), (151, group(2, 1))),
    ]
    records[3] = Record(4, 149, "RunConfigured", {})
    ledger = account(records, {1: [(0, 103.0), (1, 106.0)]})
    assert ledger == Ledger(51, redone_s=3, starting_s=3 + 1, down_s=44)


def test_a_run_that_is_under_way_goes_up_to_its_last_report() -> None:
    ledger = account(written((100, started()), (101, group(1, 0))), {1: [(0, 103.0), (1, 106.0)]})
    assert ledger == Ledger(6, starting_s=3, productive_s=3)


def test_back_off_is_named_apart() -> None:
    fails = [ev.WorkerFailed(n, 0, Evidence(exit_code=1)) for n in (1, 2, 3)]
    ledger = account(
        written(
            *[(100, started(backoff_s=2.0)), (100, group(1, 0)), (101, fails[0]), (102, group(2, 0))],
            *[(103, fails[1]), (106, group(3, 0)), (107, fails[2]), (111.5, group(4, 0)), (112, FINISHED)],
        ),
        {},
    )
    assert (ledger.recovering_s, ledger.waiting_s) == (1 + 1 + 0.5, 2 + 4)
    assert [f.recovered_s for f in ledger.failures] == [None, None, None]


def test_only_what_counts_as_a_failure_is_one() -> None:
    peer = ev.WorkerFailed(1, 0, Evidence(exception="RuntimeError"))
    ledger = account(written((1, started()), (1, group(1, 0)), (2, KILLED), (3, peer), (4, FINISHED)), {})
    assert [f.rank for f in ledger.failures] == [1]
    stopped = account(written((1, started()), (1, group(1, 0)), (2, ev.StopAsked()), (3, KILLED), (4, FINISHED)), {})
    assert stopped.failures == ()
    storage = account(written((1, started()), (1, group(1, 0)), (2, ev.CommitFailed(1, 0, "disk full"))), {})
    assert [(f.rank, f.kind) for f in storage.failures] == [(-1, "storage")]


def test_a_record_that_does_not_fit_costs_itself() -> None:
    stranger = ev.WorkerFailed(1, 7, Evidence(signal=9))
    ledger = account(written((1, started()), (1, group(1, 0)), (2, stranger), (4, FINISHED)), {1: [(0, 3.0)]})
    assert ledger == Ledger(3, starting_s=2, finishing_s=1)


def test_a_clock_that_is_set_back_costs_one_stretch() -> None:
    times = [100.0, 101.0, 110.0, 12.0, 20.0, 21.0]
    records = [msgspec.structs.replace(r, time=t) for r, t in zip(FAILED_ONCE, times, strict=True)]
    ledger = account(records, {**ITS_REPORTS, 2: [(0, 13.0), (1, 16.0)]})
    check_sum(ledger)
    assert (ledger.wall_clock_s, ledger.productive_s, ledger.recovering_s) == (19, 5, 0)


def test_a_worker_whose_clock_is_ahead() -> None:
    """What it says it did after its group had failed was before that."""
    ledger = account(FAILED_ONCE, {1: [(index, time + 4) for index, time in ITS_REPORTS[1]], 2: ITS_REPORTS[2]})
    check_sum(ledger)
    assert (ledger.starting_s, ledger.redone_s, ledger.recovering_s) == (1 + 6 + 1, 1, 2)


def test_nothing_at_all() -> None:
    assert account([], {}) == Ledger()
    assert Ledger().goodput == 0
    assert Ledger().summary() == "nothing is known of where the time went"
    assert str(Ledger())


@settings(deadline=None)
@given(runs())
def test_any_run_is_accounted_for_as_it_went(run: Run) -> None:
    ledger = account(run.records, run.reports)
    check_sum(ledger)
    assert ledger.wall_clock_s == run.end - run.records[run.first].time
    assert ledger.parts == run.expected
    assert [(f.time, f.recovered_s) for f in ledger.failures] == run.failures


@settings(deadline=None)
@given(runs(), st.data())
def test_damage_and_steps_of_the_clock(run: Run, data: st.DataObject) -> None:
    steps = st.sampled_from([0.0, 0.0, 0.0, -3600.0, 5.0, -0.25])
    records, offset = [], 0.0
    for record in run.records:
        offset += data.draw(steps)
        if data.draw(st.integers(0, 9)):
            records.append(msgspec.structs.replace(record, time=record.time + offset))
    kept = {key: [r for r in value if data.draw(st.booleans())] for key, value in run.reports.items()}
    ledger = account(records, kept)
    check_sum(ledger)
    assert len(ledger.failures) <= len(run.failures)


TIMES = st.floats(1.7e9, 1.8e9) | st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300])
NUMBERS = st.integers(-2, 4)
EVENTS = st.one_of(
    st.builds(started),
    st.builds(ev.GroupStarted, NUMBERS, NUMBERS, st.none(), NUMBERS),
    st.builds(ev.WorkerFailed, NUMBERS, NUMBERS, st.just(Evidence(exit_code=1))),
    st.builds(ev.ShardFailed, NUMBERS, NUMBERS, NUMBERS, st.just("disk full")),
    st.builds(ev.StopAsked, st.booleans()),
    st.builds(ev.RunEnded, st.sampled_from(Outcome), st.just("")),
)
FITTING = st.builds(lambda time, event: written((time, event))[0], TIMES, EVENTS)
ODD = st.builds(Record, st.just(1), TIMES, st.sampled_from([*ev.DURABLE, "FromTheFuture"]), st.just({"rank": None}))
SOUP = st.lists(FITTING | FITTING | FITTING | ODD, min_size=5, max_size=30)
REPORTS = st.dictionaries(NUMBERS, st.lists(st.tuples(NUMBERS, TIMES), max_size=9))


@settings(deadline=None)
@given(SOUP, REPORTS)
def test_no_records_are_too_odd(records: list[Record], reports: dict[int, list[tuple[int, float]]]) -> None:
    ledger = account(records, reports)
    assert math.isclose(sum(ledger.parts.values()), ledger.wall_clock_s, rel_tol=1e-9)
    assert min(ledger.parts.values()) >= 0
    assert ledger.summary()
    assert str(ledger)


# Real runs


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
    """Saves every third step, and is killed after its fifth: steps 4 and 5 are done again."""
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
    assert (failure.generation, failure.rank, failure.kind) == (1, 1, "crash")
    assert failure.recovered_s is not None
    assert failure.recovered_s > ledger.recovering_s > 0
    assert ledger.productive_s > 0
    assert ledger.redone_s > 0
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
    kill_after_commit(start(tmp_path, **faults), tmp_path, 8)
    killed = load(tmp_path / "run").ledger
    check_sum(killed)
    assert killed.down_s == 0
    kill_after_commit(start(tmp_path, **faults), tmp_path, 22)
    last = start(tmp_path, **faults, verbose=1)
    _, errors = last.communicate(timeout=PATIENCE_S)
    assert last.returncode == 0, errors
    ledger, records = check_run(tmp_path / "run")
    assert ledger.summary() in errors.splitlines()
    assert [f.kind for f in ledger.failures] == ["user error", "user error"]
    assert all(f.recovered_s for f in ledger.failures)
    assert ledger.productive_s > killed.productive_s > 0
    reports = [read_metrics(RunLayout(tmp_path / "run"), generation, 0)[0] for generation in range(1, 6)]
    signs = [r.time for r in records if r.kind != "RunConfigured"] + [row["time"] for rows in reports for row in rows]
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
