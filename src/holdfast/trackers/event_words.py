"""Describes events in words, for the event log. Events that are not listed here show their name and fields."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run import memory, regrouping


def words(event: ev.Event) -> str:
    match event:
        case ev.DriverStarted(epoch):
            return f"driver {epoch} started"
        case ev.AttemptStarted(attempt_number, world_size):
            workers = f"{world_size} worker{'' if world_size == 1 else 's'}"
            return f"attempt {attempt_number} with {workers} {memory.told(event)}"
        case ev.WorkerReady() | ev.WorkerReturned() | ev.WorkerFailed():
            what = {ev.WorkerReady: "is ready", ev.WorkerReturned: "returned", ev.WorkerFailed: "failed"}[type(event)]
            return f"rank {event.rank} {what}"
        case ev.AttemptGone(attempt_number):
            return f"all workers of attempt {attempt_number} have exited"
        case ev.Regrouped():
            return f"{regrouping.told(event)}, all ranks continue after step {event.steps}"
        case ev.RegroupFailed(_, why):
            return f"the lost rank is not replaced alone: {why}"
        case ev.HandedOver(attempt_number, reason):
            return f"attempt {attempt_number} ended as planned: {reason.value}"
        case ev.Committed(record):
            return f"{record.id} is committed (report {record.report})"
        case ev.Verified(id):
            return f"{id} is intact"
        case ev.Damaged(id, why):
            return f"{id} is damaged and was set aside: {why}"
        case ev.CapacityLacking(least, room):
            return f"waiting for nodes: {least} workers are needed, and {room} fit now"
        case ev.StopAsked(at_once):
            return "asked to stop immediately" if at_once else "asked to stop"
        case ev.RunEnded(outcome, reason):
            return f"{outcome.value}: {reason}" if reason else str(outcome.value)
    return ""
