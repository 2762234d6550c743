"""A run's journal in words: drivers, attempts, failures and the reaction to each, waits, and the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from holdfast.core.budgets import action_taken
from holdfast.core.run import events as ev
from holdfast.core.run import memory, regrouping
from holdfast.core.run import step as core
from holdfast.core.run.backpressure import Behind
from holdfast.core.run.state import Durable, Failure, HandoverReason
from holdfast.store.journal import Record

from .comparison import changes_text
from .past import IDENTITY

_PLANNED = {
    HandoverReason.RESIZE: "to continue on other nodes or with another number of workers",
    HandoverReason.PREEMPTION: "at a checkpoint, because nodes will be preempted",
    HandoverReason.STOP: "at a checkpoint, because a stop was requested",
}


class Moment(NamedTuple):
    time: float
    # driver, settings, attempt, live, standby, hand-over, failure, stacks, node, waiting, storage, damage, stop or end
    kind: str
    text: str
    cause: str | None = None  # a failure's class
    action: str | None = None  # the reaction


def moments(records: Iterable[Record]) -> list[Moment]:
    told: list[Moment] = []
    state, has_ended, stalled = Durable(), True, False
    settings: dict[str, Any] | None = None
    for record in records:
        if record.kind == IDENTITY:
            changed = changes_text(settings, record.body) if settings is not None else ""
            settings = record.body
            if changed:
                told.append(Moment(record.time, "settings", f"settings changed: {changed}"))
        event_type = ev.DURABLE.get(record.kind)
        if event_type is None:
            continue
        event = msgspec.convert(record.body, event_type)
        before, state = state, core.replay(state, event)
        if state.failure is not None and state.failure is not before.failure:
            _tell_failure(told, record.time, state.failure, action_taken(state))
        told += [Moment(record.time, "node", text) for text in _rests(before, state)]
        telling = _tell_of_storage(event, stalled) if isinstance(event, ev.StorageLags) else _tell(event, has_ended)
        if telling is not None:
            told.append(Moment(record.time, *telling))
        if isinstance(event, (ev.DriverStarted, ev.StorageLags)):
            stalled = isinstance(event, ev.StorageLags) and event.stalled
        if isinstance(event, (ev.DriverStarted, ev.RunEnded)):
            has_ended = isinstance(event, ev.RunEnded)
    return told


def _tell_failure(told: list[Moment], time: float, failure: Failure, action: str) -> None:
    moment = Moment(time, "failure", failure.text, failure.kind.value, action)
    places = [place for place, known in enumerate(told) if known.kind == "failure"]
    if failure.instead and places:
        told[places[-1]] = moment._replace(time=told[places[-1]].time)
    else:
        told.append(moment)


def _tell(event: ev.Event, has_ended: bool) -> tuple[str, str] | None:
    match event:
        case ev.DriverStarted(epoch):
            died = "" if has_ended else f" (driver {epoch - 1} was killed)"
            return "driver", f"driver {epoch} started{died}"
        case ev.AttemptStarted(attempt_number, world_size):
            return "attempt", f"attempt {attempt_number} with {_workers(world_size)} {memory.told(event)}"
        case ev.Regrouped() | ev.RegroupFailed() | ev.RankMoved():
            return "live", live_text(event)
        case ev.StandbyReady(attempt_number, number, node):
            return (
                "standby",
                f"standby worker {number} of attempt {attempt_number} is ready{f' on {node}' if node else ''}",
            )
        case ev.StandbyLost(attempt_number, number, why):
            return "standby", f"standby worker {number} of attempt {attempt_number} was lost: {why}"
        case ev.HandedOver(attempt_number, reason):
            return "hand-over", f"attempt {attempt_number} ended as planned, {_PLANNED[reason]}"
        case ev.CapacityLacking(least, room):
            return "waiting", f"waits for nodes: the next attempt needs {_workers(least)}, and {room} fit now"
        case ev.NodeRested(node):
            return "node", f"{node} may be used again"
        case ev.StacksTaken(attempt_number, rank):
            cause = f"; the others seem to wait for rank {rank}" if rank >= 0 else ""
            return (
                "stacks",
                f"attempt {attempt_number} made no progress; the stacks of its ranks were saved{cause}",
            )
        case ev.Damaged(id, why):
            return "damage", f"{id} was found damaged and set aside: {why}"
        case ev.StopAsked(at_once):
            return "stop", "asked to stop immediately" if at_once else "asked to stop"
        case ev.RunEnded(outcome, reason):
            return "end", f"{outcome.value}: {reason}" if reason else outcome.value
    return None


def live_text(event: ev.Regrouped | ev.RegroupFailed | ev.RankMoved) -> str:
    """How ranks were replaced while their peers kept running."""
    match event:
        case ev.Regrouped():
            return f"{regrouping.told(event)}; all ranks continue after step {event.steps:,}, and no step is repeated"
        case ev.RegroupFailed(attempt_number, why):
            return f"attempt {attempt_number} could not continue with the lost rank replaced: {why}"
        case ev.RankMoved(attempt_number, rank, _, node):
            return f"rank {rank} of attempt {attempt_number} moves to {node}, because its node will be preempted"


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _tell_of_storage(event: ev.StorageLags, was_stalled: bool) -> tuple[str, str]:
    behind = Behind(event.checkpoints, event.bytes, event.seconds)
    if event.stalled:
        return "storage", f"training waits for storage to catch up: {behind} not uploaded yet"
    if was_stalled:
        return "storage", f"storage has caught up, and training continues; left: {behind}"
    return "storage", f"storage is slow: {behind} not uploaded yet; training continues meanwhile"


def _rests(before: Durable, after: Durable) -> list[str]:
    """Tells of nodes that are not used for a while."""
    rest_s = after.spec.bad_node_rest_s
    return [
        f"{node} had {after.node_failures[node]} failures: no worker is placed there for {rest_s:.0f} s"
        for node in sorted(after.resting - before.resting)
    ]
