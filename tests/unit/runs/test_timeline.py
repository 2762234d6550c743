"""Each thing that a journal tells is told in words that a person understands."""

from __future__ import annotations

import pytest

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import HandoverReason, RunSpec
from holdfast.runs import timeline
from holdfast.store.journal import Record

SPEC = RunSpec(num_workers=2, min_workers=1, max_failures=-1, bad_node_failures=2, bad_node_rest_s=600.0)
BEGIN = [ev.DriverStarted(1, SPEC), ev.AttemptStarted(1, 2, None, 0)]
CRASH = Evidence(signal=9)


def told(*events: ev.Event) -> list[tuple[str, str]]:
    """What is said of these, after a run has begun."""
    journal = [*BEGIN, *events]
    records = [Record(i, 100.0 + i, *ev.journalled(event)) for i, event in enumerate(journal)]
    moments = timeline.moments(records)
    assert [moment.time for moment in moments] == sorted(moment.time for moment in moments)
    return [(moment.kind, moment.text) for moment in moments if moment.time >= 100.0 + len(BEGIN)]


def test_every_event_that_is_journalled_is_told_of_or_is_known_to_be_dull() -> None:
    dull = {"Committed", "Validated", "ShardFailed", "CommitFailed", "UploadFailed", "WorkerFailed", "Adopted"}
    spoken = {"DriverStarted", "GroupStarted", "Damaged", "StopAsked", "RunEnded"}
    spoken |= {"CapacityLacking", "HandedOver", "StorageLags", "NodeRested", "StacksTaken"}
    spoken |= {"Regrouped", "RegroupFailed", "RankMoved", "StandbyReady", "StandbyLost"}
    assert set(ev.DURABLE) <= dull | spoken


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (HandoverReason.RESIZE, "to continue on other nodes or with another number of workers"),
        (HandoverReason.PREEMPTION, "at a checkpoint, because nodes will be preempted"),
        (HandoverReason.STOP, "at a checkpoint, because a stop was requested"),
    ],
)
def test_a_planned_end(reason: HandoverReason, why: str) -> None:
    assert told(ev.HandedOver(1, reason)) == [("hand-over", f"attempt 1 ended as planned, {why}")]


@pytest.mark.parametrize(("least", "workers"), [(1, "1 worker"), (2, "2 workers")])
def test_a_wait_for_nodes(least: int, workers: str) -> None:
    expected = f"waits for nodes: the next attempt needs {workers}, and 0 fit now"
    assert told(ev.CapacityLacking(least, 0)) == [("waiting", expected)]


def test_storage_that_falls_behind_stops_training_and_catches_up() -> None:
    lags = [ev.StorageLags(False, 1, 2 * 10**9, 61.0), ev.StorageLags(True, 65, 3 * 10**9, 70.0)]
    assert told(*lags, ev.StorageLags(False, 2, 10**6, 1.0)) == [
        (
            "storage",
            "storage is slow: 1 checkpoint, 2 GB, the oldest for 61 s not uploaded yet; training continues meanwhile",
        ),
        (
            "storage",
            "training waits for storage to catch up: 65 checkpoints, 3 GB, the oldest for 70 s not uploaded yet",
        ),
        ("storage", "storage has caught up, and training continues; left: 2 checkpoints, 0.001 GB, the oldest for 1 s"),
    ]


def test_a_node_that_rests_and_comes_back() -> None:
    events = [ev.WorkerFailed(1, 0, CRASH, "node-7"), ev.AttemptStarted(2, 2, None, 0)]
    events += [ev.WorkerFailed(2, 0, Evidence(stalled_s=3.0), "node-7"), ev.NodeRested("node-7")]
    about_nodes = [text for kind, text in told(*events) if kind == "node"]
    assert about_nodes == [
        "node-7 had 2 failures: no worker is placed there for 600 s",
        "node-7 may be used again",
    ]


@pytest.mark.parametrize(("rank", "blames"), [(-1, ""), (1, "; the others seem to wait for rank 1")])
def test_the_stacks_of_an_attempt_that_hangs(rank: int, blames: str) -> None:
    text = f"attempt 1 made no progress; the stacks of its ranks were saved{blames}"
    assert told(ev.StacksTaken(1, rank)) == [("stacks", text)]


def test_a_cause_that_is_heard_of_late_is_told_in_the_place_of_what_followed_from_it() -> None:
    peer = ev.WorkerFailed(1, 0, Evidence(exception="RuntimeError"), "node-1")
    lost = ev.WorkerFailed(1, 1, Evidence(node_lost=True), "node-2")
    assert told(peer, lost) == [("failure", "rank 1 was lost with its node")]
