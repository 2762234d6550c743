"""What to do. The driver carries these out; nothing here does anything."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.run.events import Event
from holdfast.core.run.state import HandoverReason, Outcome, Snapshot
from holdfast.core.run.timers import Timer


class Command(Struct, frozen=True):
    pass


class Decide(Command, frozen=True):
    """A decision that must survive the driver: journal this event and step it, before anything else is done."""

    event: Event


class StartAttempt(Command, frozen=True):
    attempt_number: int
    world_size: int
    resume: str | None
    base: int
    leased: tuple[str, ...] = ()  # the nodes across a network on which it may be placed
    snapshot: tuple[int, int] | None = None  # recalled for it: the attempt that took it, and its step


class StopAttempt(Command, frozen=True):
    attempt_number: int
    graceful: bool


class ReplaceRank(Command, frozen=True):
    """Start another process for a rank, and end its old process if that still exists."""

    attempt_number: int
    rank: int
    number: int  # counts the replacements of the attempt
    standby: int = 0  # the standby worker that takes it


class StartStandby(Command, frozen=True):
    """Start a process that runs the script up to the point where a replacement joins its peers. It waits there for a
    rank."""

    attempt_number: int
    number: int
    moves: bool = False  # it is for a rank that moves to another node


class TellPeersLost(Command, frozen=True):
    """Tell the survivors that a peer is lost: they may wait for it in a collective."""

    attempt_number: int
    number: int


class RegroupRanks(Command, frozen=True):
    """All ranks wait. Let them form their group, send the state of ``source`` to the ranks that need it, and
    continue."""

    attempt_number: int
    number: int
    source: int
    steps: tuple[int, ...]  # completed by each rank; the value of a replacement does not count
    reports: int  # made by the source
    made: tuple[int, ...]  # the known number of reports of each rank
    replaced: tuple[int, ...]


class Gather(Command, frozen=True):
    """A checkpoint is complete: have its nodes put its files together, and remember it in case the driver dies before
    it is in storage."""

    attempt_number: int
    index: int
    id: str
    report: int
    world_size: int
    ranks: tuple[int, ...]  # the ranks that saved files
    validate: bool


class Upload(Command, frozen=True):
    """Upload a gathered checkpoint's files from the nodes that have them."""

    attempt_number: int
    index: int
    id: str
    ranks: tuple[int, ...]


class Commit(Command, frozen=True):
    attempt_number: int
    index: int
    id: str
    report: int
    world_size: int
    ranks: tuple[int, ...]  # the ranks that saved files
    validate: bool


class AskHandover(Command, frozen=True):
    """Tell the workers that their attempt is about to end, and ask them for a checkpoint at the next report."""

    attempt_number: int
    reason: HandoverReason
    nodes: tuple[str, ...]  # the nodes that will be removed
    deadline_s: float | None
    number: int = 1


class DumpStacks(Command, frozen=True):
    """Record the stacks of all ranks. The answer is StacksTaken."""

    attempt_number: int


class Rest(Command, frozen=True):
    """Stop using this node while others suffice; with ``on`` False, use it again."""

    node: str
    on: bool


class Stall(Command, frozen=True):
    """Make workers wait before they stage more files; with ``on`` False, let them continue."""

    on: bool


class Discard(Command, frozen=True):
    """Remove the staged shards of a report that can no longer become complete."""

    attempt_number: int
    index: int


class Delete(Command, frozen=True):
    id: str


class Verify(Command, frozen=True):
    id: str


class Recall(Command, frozen=True):
    """Verify a snapshot in memory and copy it to the nodes of the next attempt. The answer is Recalled or
    SnapshotLost."""

    snapshot: Snapshot
    world_size: int


class Quarantine(Command, frozen=True):
    id: str
    why: str


class Validate(Command, frozen=True):
    id: str


class SetTimer(Command, frozen=True):
    """Fire ``TimerFired(timer)`` after that many seconds. This replaces an earlier setting of the same timer."""

    timer: Timer
    after_s: float


class CancelTimer(Command, frozen=True):
    timer: Timer


class Warn(Command, frozen=True):
    text: str


class Finish(Command, frozen=True):
    outcome: Outcome
    reason: str
