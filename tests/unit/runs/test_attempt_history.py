"""Attempts as stretches of time: how each ended, what a failure cost, and how long a driver that was killed lived."""

from __future__ import annotations

from typing import Any

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, HandoverReason, Outcome, RunSpec
from holdfast.runs.attempt_history import (
    BY_STANDBY,
    FAILED,
    KILLED,
    MOVED,
    NOT_LIVE,
    PLANNED,
    REPLACED,
    RUNNING,
    attempt_history,
)
from holdfast.store.journal import Record

SPEC = RunSpec(num_workers=2, max_failures=9)


def records(*told: tuple[float, Any]) -> list[Record]:
    return [
        Record(number, time, "RunConfigured", event)
        if isinstance(event, dict)
        else Record(number, time, *ev.journalled(event))
        for number, (time, event) in enumerate(told, start=1)
    ]


def test_a_failure_says_what_it_cost_and_what_followed_from_it() -> None:
    history = attempt_history(
        records(
            (0, ev.DriverStarted(1, SPEC)),
            (1, ev.AttemptStarted(1, 2, None, 0)),
            (5, ev.Committed(CheckpointRecord("checkpoint_000004", 4), 1, 3)),
            (8, ev.WorkerFailed(1, 1, Evidence(signal=9), "node-a", 7)),
            (8.1, ev.WorkerFailed(1, 0, Evidence(exception="RuntimeError", message="connection closed"), "node-a", 7)),
            (9, ev.AttemptStarted(2, 2, "checkpoint_000004", 4)),
            (12, ev.HandedOver(2, HandoverReason.RESIZE)),
            (13, ev.AttemptStarted(3, 1, "checkpoint_000004", 9)),
            (20, ev.RunEnded(Outcome.FINISHED, "")),
        )
    )
    (failure,) = history.failures
    assert (failure.rank, failure.kind, failure.node, failure.lost) == (1, "crash", "node-a", 3)
    assert failure.resumed_from == "checkpoint_000004"
    assert [text for text in failure.knock_on if "connection closed" in text]
    assert [(span.began, span.ended, span.outcome) for span in history.attempts] == [
        (1, 8, FAILED),
        (9, 12, PLANNED),
        (13, 20, "ended"),
    ]
    assert history.resumed == {"checkpoint_000004"}


def test_a_killed_driver_lived_until_its_last_record() -> None:
    history = attempt_history(
        records(
            (0, ev.DriverStarted(1, SPEC)),
            (1, ev.AttemptStarted(1, 2, None, 0)),
            (4, ev.Committed(CheckpointRecord("checkpoint_000004", 4), 1, 3)),
            (60, {"name": "run"}),  # the next driver writes it before it says that it starts
            (60, ev.DriverStarted(2, SPEC)),
            (61, ev.AttemptStarted(2, 2, "checkpoint_000004", 4)),
        ),
        now=70.0,
    )
    assert [(span.began, span.ended, span.outcome) for span in history.drivers] == [(0, 4, KILLED), (60, 70, RUNNING)]
    assert [(span.ended, span.outcome) for span in history.attempts] == [(4, KILLED), (70, RUNNING)]


def test_restarts_without_progress_and_stalls_are_seen() -> None:
    told: list[tuple[float, Any]] = [(0, ev.DriverStarted(1, SPEC))]
    for attempt in range(1, 5):
        told.append((attempt * 10, ev.AttemptStarted(attempt, 2, None, 0)))
        if attempt < 4:
            told.append((attempt * 10 + 5, ev.WorkerFailed(attempt, 0, Evidence(signal=9))))
    told.append((42, ev.StorageLags(True, 2, 100, 3.0)))
    history = attempt_history(records(*told), now=50.0)
    assert history.restarts_without_progress == 3
    assert history.is_stalled
    assert history.stalls == [(42, 50.0)]


def test_a_journal_with_lost_records_is_no_exception() -> None:
    whole = records(
        (0, ev.DriverStarted(1, SPEC)),
        (1, ev.AttemptStarted(1, 2, None, 0)),
        (2, ev.WorkerFailed(1, 0, Evidence(signal=9))),
        (3, ev.AttemptStarted(2, 2, None, 0)),
        (4, ev.RunEnded(Outcome.FAILED, "no")),
    )
    for start in range(len(whole)):
        for end in range(start, len(whole) + 1):
            attempt_history(whole[start:end])
    attempt_history([Record(1, 1.0, "GroupStarted", {"nonsense": 1})])


def test_a_rank_that_is_replaced_live_does_not_end_the_attempt() -> None:
    told: list[tuple[float, Any]] = [
        (0, ev.DriverStarted(1, SPEC)),
        (1, ev.AttemptStarted(1, 2, None, 0, leased=("node-a", "node-b"))),
        (5, ev.WorkerFailed(1, 1, Evidence(signal=9), "node-b", 7, live=True)),
    ]
    replaced = attempt_history(records(*told, (6, ev.Regrouped(1, 1, 8, 0, 7, (1,)))), now=9.0)
    assert [(span.outcome, span.ended, span.nodes) for span in replaced.attempts] == [
        (RUNNING, 9, ("node-a", "node-b"))
    ]
    assert [(failure.live, failure.lost) for failure in replaced.failures] == [(True, 0)]
    lost = attempt_history(records(*told, (6, ev.RegroupFailed(1, "rank 0 did not answer"))), now=9.0)
    assert [(span.outcome, span.ended) for span in lost.attempts] == [(FAILED, 6)]
    assert [moment.kind for moment in replaced.live + lost.live] == [REPLACED, NOT_LIVE]


def test_a_rank_that_moves_to_another_node_brings_that_node_into_its_attempt() -> None:
    history = attempt_history(
        records(
            (0, ev.DriverStarted(1, SPEC)),
            (1, ev.AttemptStarted(1, 2, None, 0, leased=("node-a", "node-b"))),
            (5, ev.RankMoved(1, 1, 1, "node-c", ("node-c",))),
            (6, ev.Regrouped(1, 1, 8, 0, 7, (1,), by_standby=(1,))),
            (7, ev.WorkerFailed(1, 0, Evidence(signal=9), "node-a", 9, live=True, standby=2)),
            (8, ev.Regrouped(1, 2, 9, 1, 8, (0,), by_standby=(0,))),
        ),
        now=9.0,
    )
    assert [(moment.time, moment.kind) for moment in history.live] == [(5, MOVED), (6, BY_STANDBY), (8, BY_STANDBY)]
    (span,) = history.attempts
    assert (span.nodes, span.joined) == (("node-a", "node-b", "node-c"), {"node-c": 5})
    assert [failure.by_standby for failure in history.failures] == [True]


def test_how_far_storage_is_behind_is_known_as_long_as_the_driver_says_so() -> None:
    told = records(
        (0, ev.DriverStarted(1, SPEC)), (1, ev.AttemptStarted(1, 2, None, 0)), (99, ev.StorageLags(False, 3, 9, 70))
    )
    assert str(attempt_history(told, now=120.0).behind).startswith("3 checkpoints")
    assert attempt_history(told, now=900.0).behind is None
    assert attempt_history(told).behind is None
