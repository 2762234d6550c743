"""The timers of a run. A timer is a value: setting it again replaces it; when it is due it comes back as an event."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class TimerKind(str, Enum):
    BACKOFF = "backoff"  # before the next attempt
    DOUBT = "doubt"  # until workers of an earlier driver must have ended
    START = "start"  # for all ranks to enter the train function
    STOPPED = "stopped"  # for a rank that was stopped
    HANG = "hang"  # for the next report
    REGROUP = "regroup"  # for survivors and replacements to form a group
    STANDBY = "standby"  # before another standby worker is started
    MOVE = "move"  # for the ranks of a node that will be preempted to move
    STACKS = "stacks"  # for the stacks of a hang
    HANDOVER = "handover"  # for the checkpoint before a node is preempted
    RESIZE = "resize"  # before the number of workers may change again
    REST = "rest"  # of a node that failed too often
    SYNC = "sync"  # before complete checkpoints are uploaded
    MISSING = "missing"  # for the other ranks' part of a checkpoint


class Timer(Struct, frozen=True):
    kind: TimerKind
    of: int | str | None = None  # the rank, node or report that it belongs to, if there can be several


BACKOFF = Timer(TimerKind.BACKOFF)
DOUBT = Timer(TimerKind.DOUBT)
START = Timer(TimerKind.START)
HANG = Timer(TimerKind.HANG)
STACKS = Timer(TimerKind.STACKS)
REGROUP = Timer(TimerKind.REGROUP)
STANDBY = Timer(TimerKind.STANDBY)
MOVE = Timer(TimerKind.MOVE)
HANDOVER = Timer(TimerKind.HANDOVER)
RESIZE = Timer(TimerKind.RESIZE)
SYNC = Timer(TimerKind.SYNC)


def stopped(rank: int) -> Timer:
    return Timer(TimerKind.STOPPED, rank)


def rest(node: str) -> Timer:
    return Timer(TimerKind.REST, node)


def missing(index: int) -> Timer:
    return Timer(TimerKind.MISSING, index)
