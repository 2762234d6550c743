"""Messages between driver and agent about ranks that can be replaced, and about standby workers."""

from __future__ import annotations

from .message import Message
from .worker_messages import Place

# Driver to agent


class StartStandby(Message, frozen=True, tag=True):
    """Start a worker of the attempt that waits for a rank."""

    attempt_number: int
    number: int
    world_size: int
    base: int
    cpus: float = 1.0
    address: str = "127.0.0.1"  # where other nodes reach this one


class PromoteStandby(Message, frozen=True, tag=True):
    """The standby takes the place of a lost rank. The agent ends what is left of that rank's process."""

    attempt_number: int
    number: int
    place: Place
    checkpoint: str | None  # the checkpoint that the attempt resumed from
    joins: int  # the number of the replacement


class EndRank(Message, frozen=True, tag=True):
    """The rank is on another node now: end its process here."""

    attempt_number: int
    rank: int


# Agent to driver


class WorkerIsArmed(Message, frozen=True, tag=True):
    """The rank can repeat its step if a peer is lost."""

    attempt_number: int
    rank: int
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class StandbyIsReady(Message, frozen=True, tag=True):
    attempt_number: int
    number: int


class StandbyHasEnded(Message, frozen=True, tag=True):
    """A standby exited before it got a rank. After that, the message is ``WorkerHasFailed``."""

    attempt_number: int
    number: int
    why: str
