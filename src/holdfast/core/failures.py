"""What kind of failure was it? Found from evidence alone, so that the same evidence always gives the same answer."""

from __future__ import annotations

import signal
from enum import Enum

from msgspec import Struct


class FailureKind(str, Enum):
    USER_ERROR = "user error"
    CRASH = "crash"
    OUT_OF_MEMORY = "out of memory"
    HANG = "hang"
    NODE_LOST = "node lost"
    PREEMPTED = "preempted"
    STORAGE = "storage"
    START_UP = "start-up"


class Evidence(Struct, frozen=True):
    """The evidence of a worker's end."""

    exception: str = ""  # the qualified name of the exception's class, if the train function raised one
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    started: bool = True  # the train function had been entered
    stalled_s: float | None = None  # how long it made no progress
    oom_killed: bool = False  # by the kernel
    out_of_memory: bool = False  # as the framework judges the exception
    node_lost: bool = False
    storage: bool = False
    preempted: bool = False  # its node had been announced to be removed


# Workers say whether an exception of a framework means this (worker/imported_frameworks.py). These names, and the
# prefix below, are for the evidence in older journals.
OUT_OF_MEMORY = (
    "MemoryError",
    "torch.OutOfMemoryError",
    "torch.cuda.OutOfMemoryError",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError",
)


def classify(evidence: Evidence) -> FailureKind:
    if evidence.storage:
        return FailureKind.STORAGE
    if evidence.preempted:
        return FailureKind.PREEMPTED
    if evidence.node_lost:
        return FailureKind.NODE_LOST
    if evidence.stalled_s is not None:
        return FailureKind.HANG if evidence.started else FailureKind.START_UP
    if evidence.oom_killed or evidence.out_of_memory or _is_out_of_memory(evidence):
        return FailureKind.OUT_OF_MEMORY
    if not evidence.started:
        return FailureKind.START_UP
    return FailureKind.USER_ERROR if evidence.exception else FailureKind.CRASH


def _is_out_of_memory(evidence: Evidence) -> bool:
    """JAX and TensorFlow use one class for many errors; only the message says which error it was."""
    exhausted = evidence.message.startswith("RESOURCE_EXHAUSTED") and evidence.exception.endswith("RuntimeError")
    return evidence.exception in OUT_OF_MEMORY or exhausted


def may_follow(evidence: Evidence) -> bool:
    """Whether it may be a knock-on failure: an exception, an abort, the script's own exit, or a wait for a peer."""
    own = evidence.storage or evidence.node_lost or classify(evidence) is FailureKind.OUT_OF_MEMORY
    return not own and evidence.signal in (None, signal.Signals.SIGABRT)


def describe(rank: int, evidence: Evidence) -> str:
    """One sentence for a person: who, and what happened."""
    who = f"rank {rank}" if rank >= 0 else "the run"
    when = "" if evidence.started else " before its train function was entered"
    if evidence.storage:
        return f"{who}: a checkpoint could not be stored: {evidence.message}"
    if evidence.preempted:
        return f"{who} was preempted: {evidence.message or 'its node was preempted'}"
    if evidence.node_lost:
        return f"{who} was lost with its node{': ' if evidence.message else ''}{evidence.message}"
    if evidence.stalled_s is not None:
        return f"{who} made no progress for {evidence.stalled_s:.1f} s ({evidence.message or 'no report'})"
    if evidence.exception:
        first_line = evidence.message.splitlines()[0] if evidence.message else ""
        return f"{who} raised {evidence.exception}{': ' if first_line else ''}{first_line}{when}"
    if evidence.signal is not None:
        oom = ", by the kernel because memory ran out" if evidence.oom_killed else ""
        return f"{who} was killed by {_signal_name(evidence.signal)}{oom}{when}"
    return f"{who} exited with code {evidence.exit_code} without returning{when}"


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
