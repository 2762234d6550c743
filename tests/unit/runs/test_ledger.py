"""Every second of a run is in exactly one part of its ledger, whatever happened to the run, its clock or its files."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, HandoverReason, Outcome, RunSpec
from holdfast.runs.ledger import FailureEntry, Ledger, account
from holdfast.store.journal import Record
from holdfast.store.remote.sequence import EPOCH_BEGAN
from support.driver.ledger_model import Run, check_sum, runs

KILLED = ev.WorkerFailed(1, 1, Evidence(signal=9))
FINISHED = ev.RunEnded(Outcome.FINISHED, "every rank returned")


def started(**spec: Any) -> ev.DriverStarted:
    return ev.DriverStarted(1, RunSpec(max_failures=-1, **spec))


def attempt(attempt_number: int, base: int) -> ev.AttemptStarted:
    return ev.AttemptStarted(attempt_number, 2, None, base)


def written(*entries: tuple[float, ev.Event]) -> list[Record]:
    return [Record(seq, time, *ev.journalled(event)) for seq, (time, event) in enumerate(entries, start=1)]


FAILED_ONCE = written(
    (100, started()), (101, attempt(1, 0)), (110, KILLED), (112, attempt(2, 2)), (120, FINISHED), (121, FINISHED)
)
ITS_REPORTS = {1: [(0, 103.0), (1, 105.0), (2, 108.0)], 2: [(0, 113.0), (1, 116.0)]}


def test_what_the_next_driver_finds_is_no_sign_of_the_last_ones_life() -> None:
    again = [
        *[
            (200, ev.Damaged("checkpoint_000001", "its manifest is missing")),
            (201, ev.Committed(CheckpointRecord("b", 2), 1)),
        ],
        *[(202, ev.DriverStarted(2, RunSpec())), (203, attempt(2, 2)), (205, FINISHED)],
    ]
    ledger = account(written((100, started()), (101, attempt(1, 0)), (110, FINISHED), *again), {1: [(0, 105.0)]})
    assert ledger.down_s == 202 - 110
    assert ledger.finishing_s == 110 - 105


def test_a_run_with_one_failure() -> None:
    ledger = account(FAILED_ONCE, ITS_REPORTS)
    assert ledger == Ledger(
        wall_clock_s=21,
        productive_s=2 + 3,  # report 2 of the first attempt, then report 2 of the second
        repeated_s=3 + 2,  # report 3, behind the checkpoint; and what was done after it
        starting_s=1 + 2 + 1,
        recovering_s=2,
        finishing_s=4 + 1,
        failures=(FailureEntry(110, 1, 1, "crash", "rank 1 was killed by SIGKILL (signal 9)", 3),),
    )
    assert ledger.goodput == 5 / 21
    assert ledger.summary() == (
        "21.0 s: 24 % productive, 5.0 s repeated, 4.0 s starting, 2.0 s recovering, 5.0 s finishing (1 failure)"
    )
    assert str(ledger).splitlines() == [
        "wall-clock     21.0 s  100 %",
        "productive      5.0 s   24 %",
        "repeated        5.0 s   24 %",
        "starting        4.0 s   19 %",
        "recovering      2.0 s   10 %",
        "finishing       5.0 s   24 %",
        "rank 1 was killed by SIGKILL (signal 9) [crash]: 3.0 s to the next report",
    ]
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger


def test_time_without_a_driver() -> None:
    """The driver's last sign of life is a report; what its successor found in storage is no sign of it."""
    records = [
        *written((100, started()), (101, attempt(1, 0)), (104, ev.StopAsked())),
        *written((149, started()), (150, ev.Damaged("x", "gone")), (150, started()), (151, attempt(2, 1))),
    ]
    records[3] = Record(4, 149, "RunConfigured", {})
    ledger = account(records, {1: [(0, 103.0), (1, 106.0)]})
    assert ledger == Ledger(51, repeated_s=3, starting_s=3 + 1, down_s=44)


def test_a_run_that_is_under_way_goes_up_to_its_last_report() -> None:
    ledger = account(written((100, started()), (101, attempt(1, 0))), {1: [(0, 103.0), (1, 106.0)]})
    assert ledger == Ledger(6, starting_s=3, productive_s=3)


def test_back_off_is_named_apart() -> None:
    fails = [ev.WorkerFailed(n, 0, Evidence(exit_code=1)) for n in (1, 2, 3)]
    ledger = account(
        written(
            *[(100, started(backoff_s=2.0)), (100, attempt(1, 0)), (101, fails[0]), (102, attempt(2, 0))],
            *[(103, fails[1]), (106, attempt(3, 0)), (107, fails[2]), (111.5, attempt(4, 0)), (112, FINISHED)],
        ),
        {},
    )
    assert (ledger.recovering_s, ledger.waiting_s) == (1 + 1 + 0.5, 2 + 4)
    assert [f.recovered_s for f in ledger.failures] == [None, None, None]


@pytest.mark.parametrize(("clear", "waited"), [((), 4.0), (("a@m",), 0.0)])
@pytest.mark.parametrize("far_away", [False, True])
def test_a_wait_for_nodes_that_did_not_come_back(clear: tuple[str, ...], waited: float, far_away: bool) -> None:
    """Their lease was 5 s, one of which was over when the driver began; the attempt starts 6 s after that."""
    on_node = ev.AttemptStarted(1, 2, None, 0, ("a@m",))
    again = ev.DriverStarted(2, RunSpec(lease_s=5.0), clear, waited_s=1.0)
    records = written((100, started(lease_s=5.0)), (101, on_node), (110, again), (116, attempt(2, 0)), (117, FINISHED))
    if far_away:
        records.insert(2, epoch_began(108, 2))
    ledger = account(records, {1: [(0, 103.0)], 2: [(0, 117.0)]})
    began = 108 if far_away else 110
    assert (ledger.waiting_s, ledger.down_s) == (waited, began - 103)
    assert ledger.starting_s == 3 + 117 - began - waited
    check_sum(ledger)


@pytest.mark.parametrize("lease_s", [math.inf, math.nan])
def test_a_lease_without_an_end_is_waited_for_until_the_attempt_starts(lease_s: float) -> None:
    on_node = ev.AttemptStarted(1, 2, None, 0, ("a@m",))
    again = ev.DriverStarted(2, RunSpec(lease_s=lease_s))
    ledger = account(written((100, started(lease_s=lease_s)), (101, on_node), (110, again), (116, attempt(2, 0))), {})
    check_sum(ledger)


def lags(stalled: bool) -> ev.StorageLags:
    return ev.StorageLags(stalled, 9, 9, 1.0)


def test_a_stall_is_taken_out_of_what_the_attempt_did() -> None:
    """Storage is behind from 102 to 106, and from 112 to the driver's death: news of it that change nothing count once.
    What is before the first report of an attempt was not training."""
    ledger = account(
        written(
            *[(100, started()), (100, attempt(1, 0)), (102, lags(True)), (104, lags(True)), (106, lags(False))],
            *[(107, lags(False)), (112, lags(True)), (114, KILLED), (115, attempt(2, 2)), (119, lags(True))],
            *[(130, started()), (131, attempt(3, 3)), (134, FINISHED)],
        ),
        {1: [(0, 101.0), (1, 105.0), (2, 110.0)], 2: [(0, 117.0), (1, 118.0)], 3: [(0, 132.0), (1, 133.0)]},
    )
    assert ledger == Ledger(
        wall_clock_s=34,
        productive_s=1 + 1,  # from 101, and from 132
        repeated_s=4 + 2,  # from 106 and from 110
        stalled_s=3 + 1 + 2 + 1 + 1,  # from 102 and 105, from 112, from 117 and 118
        starting_s=1 + 2 + 1 + 1,
        recovering_s=1,
        down_s=11,
        finishing_s=1,
        failures=(FailureEntry(114, 1, 1, "crash", "rank 1 was killed by SIGKILL (signal 9)", 3),),
    )


def test_a_wait_for_capacity_comes_after_the_back_off() -> None:
    lacking = ev.CapacityLacking(2, 1)
    failed_again = ev.WorkerFailed(2, 0, Evidence(exit_code=1))
    ledger = account(
        written(
            *[(100, started(backoff_s=2.0)), (101, lacking), (105, attempt(1, 0)), (106, KILLED), (107, lacking)],
            *[(110, attempt(2, 0)), (111, failed_again), (114, lacking), (121, ev.StopAsked()), (122, FINISHED)],
        ),
        {},
    )
    assert ledger.capacity_s == 4 + 3 + 8
    assert (ledger.starting_s, ledger.recovering_s, ledger.waiting_s) == (1 + 1 + 1, 1 + 1, 2)
    assert ledger.summary() == (
        "22.0 s: 0 % productive, 3.0 s starting, 2.0 s recovering, 2.0 s waiting, 15.0 s without capacity (2 failures)"
    )
    assert "capacity       15.0 s   68 %" in str(ledger).splitlines()


def test_a_hand_over_loses_nothing() -> None:
    resize = ev.HandedOver(1, HandoverReason.RESIZE)
    ledger = account(
        written((100, started()), (101, attempt(1, 0)), (109, resize), (112, attempt(2, 3)), (118, FINISHED)),
        {1: [(0, 103.0), (1, 105.0), (2, 108.0)], 2: [(0, 114.0), (1, 117.0)]},
    )
    assert ledger == Ledger(
        18, productive_s=2 + 3 + 3, starting_s=3 + 2, recovering_s=1 + 3, finishing_s=1, failures=()
    )


def test_a_hand_over_at_the_end_is_part_of_it() -> None:
    stop = ev.HandedOver(1, HandoverReason.STOP)
    ledger = account(written((100, started()), (101, attempt(1, 0)), (104, stop), (106, FINISHED)), {1: [(0, 103.0)]})
    assert ledger == Ledger(6, starting_s=3, finishing_s=3)


def test_a_handover_before_a_preemption_is_not_a_failure() -> None:
    over = ev.HandedOver(1, HandoverReason.PREEMPTION)
    ledger = account(
        written((100, started(max_preemption_failures=0)), (101, attempt(1, 0)), (104, over), (106, FINISHED)),
        {1: [(0, 103.0)]},
    )
    assert not ledger.failures
    assert (ledger.repeated_s, ledger.finishing_s) == (0, 2)


def epoch_began(time: float, epoch: int) -> Record:
    return Record(1, time, EPOCH_BEGAN, {"epoch": epoch})


def test_far_away_a_driver_has_the_run_before_it_says_so() -> None:
    """What it found and brought to storage before is its own work, and no sign of the dead one's life."""
    found = ev.Committed(CheckpointRecord("a", 1))
    records = [
        *[epoch_began(99, 1), *written((100, ev.DriverStarted(1, RunSpec())), (101, attempt(1, 0)))],
        *[epoch_began(110, 2), *written((112, found))],
        *[epoch_began(120, 3), *written((123, found), (124, ev.DriverStarted(3, RunSpec())), (125, attempt(2, 1)))],
    ]
    ledger = account(records, {1: [(0, 103.0), (1, 106.0)], 2: [(0, 127.0)]})
    assert ledger == Ledger(28, repeated_s=3, starting_s=4 + 2 + 7, down_s=4 + 8)
    lost = account([r for r in records if r.kind != EPOCH_BEGAN], {1: [(0, 103.0), (1, 106.0)]})
    check_sum(lost)


def test_only_what_counts_as_a_failure_is_one() -> None:
    peer = ev.WorkerFailed(1, 0, Evidence(exception="RuntimeError"))
    ledger = account(written((1, started()), (1, attempt(1, 0)), (2, KILLED), (3, peer), (4, FINISHED)), {})
    assert [f.rank for f in ledger.failures] == [1]
    stopped = account(written((1, started()), (1, attempt(1, 0)), (2, ev.StopAsked()), (3, KILLED), (4, FINISHED)), {})
    assert stopped.failures == ()
    storage = account(written((1, started()), (1, attempt(1, 0)), (2, ev.CommitFailed(1, 0, "disk full"))), {})
    assert [(f.rank, f.kind) for f in storage.failures] == [(-1, "storage")]


def test_a_cause_that_is_heard_of_late_takes_the_place_of_what_followed_from_it() -> None:
    peer = ev.WorkerFailed(1, 0, Evidence(exception="RuntimeError"), "node-1")
    lost = ev.WorkerFailed(1, 1, Evidence(node_lost=True, message="node-2"), "node-2")
    entries = ((1, started()), (1, attempt(1, 0)), (2, peer), (4, lost), (5, attempt(2, 0)), (7, FINISHED))
    ledger = account(written(*entries), {2: [(0, 6.0)]})
    assert ledger.failures == (FailureEntry(2, 1, 1, "node lost", "rank 1 was lost with its node: node-2", 4),)
    check_sum(ledger)


def test_a_record_that_does_not_fit_costs_itself() -> None:
    stranger = ev.WorkerFailed(1, 7, Evidence(signal=9))
    ledger = account(written((1, started()), (1, attempt(1, 0)), (2, stranger), (4, FINISHED)), {1: [(0, 3.0)]})
    assert ledger == Ledger(3, starting_s=2, finishing_s=1)


def test_an_attempt_whose_end_is_lost_was_replaced() -> None:
    records = written(
        (1, started()), (1, ev.CapacityLacking(2, 1)), (2, attempt(1, 0)), (6, attempt(2, 0)), (7, FINISHED)
    )
    assert account(records, {1: [(0, 3.0)]}) == Ledger(6, capacity_s=1, starting_s=1 + 1, recovering_s=3)


def test_a_clock_that_is_set_back_costs_one_stretch() -> None:
    times = [100.0, 101.0, 110.0, 12.0, 20.0, 21.0]
    records = [msgspec.structs.replace(r, time=t) for r, t in zip(FAILED_ONCE, times, strict=True)]
    ledger = account(records, {**ITS_REPORTS, 2: [(0, 13.0), (1, 16.0)]})
    check_sum(ledger)
    assert (ledger.wall_clock_s, ledger.productive_s, ledger.recovering_s) == (19, 5, 0)


def test_a_worker_whose_clock_is_ahead() -> None:
    """What it says it did after its attempt had failed was before that."""
    ledger = account(FAILED_ONCE, {1: [(index, time + 4) for index, time in ITS_REPORTS[1]], 2: ITS_REPORTS[2]})
    check_sum(ledger)
    assert (ledger.starting_s, ledger.repeated_s, ledger.recovering_s) == (1 + 6 + 1, 1, 2)


def test_nothing_at_all() -> None:
    assert account([], {}) == Ledger()
    assert Ledger().goodput == 0
    assert Ledger().summary() == "no timing information"
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
    st.builds(ev.AttemptStarted, NUMBERS, NUMBERS, st.none(), NUMBERS),
    st.builds(ev.WorkerFailed, NUMBERS, NUMBERS, st.just(Evidence(exit_code=1))),
    st.builds(ev.ShardFailed, NUMBERS, NUMBERS, NUMBERS, st.just("disk full")),
    st.builds(ev.StopAsked, st.booleans()),
    st.builds(ev.RunEnded, st.sampled_from(Outcome), st.just("")),
    st.builds(ev.StorageLags, st.booleans(), NUMBERS, NUMBERS, st.just(0.0)),
    st.builds(ev.CapacityLacking, NUMBERS, NUMBERS),
    st.builds(ev.HandedOver, NUMBERS, st.sampled_from(HandoverReason)),
    st.builds(ev.UploadFailed, NUMBERS, NUMBERS, st.just("no answer")),
)
KINDS = [*ev.DURABLE, EPOCH_BEGAN, "FromTheFuture"]
FITTING = st.builds(lambda time, event: written((time, event))[0], TIMES, EVENTS)
EPOCHS = st.builds(Record, st.just(1), TIMES, st.just(EPOCH_BEGAN), st.builds(lambda n: {"epoch": n}, NUMBERS))
ODD = st.builds(Record, st.just(1), TIMES, st.sampled_from(KINDS), st.just({"rank": None}))
SOUP = st.lists(FITTING | FITTING | FITTING | EPOCHS | ODD, min_size=5, max_size=30)
REPORTS = st.dictionaries(NUMBERS, st.lists(st.tuples(NUMBERS, TIMES), max_size=9))


@settings(deadline=None)
@given(SOUP, REPORTS)
def test_no_records_are_too_odd(records: list[Record], reports: dict[int, list[tuple[int, float]]]) -> None:
    ledger = account(records, reports)
    assert math.isclose(sum(ledger.parts.values()), ledger.wall_clock_s, rel_tol=1e-9)
    assert min(ledger.parts.values()) >= 0
    assert ledger.summary()
    assert str(ledger)
