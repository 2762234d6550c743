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
    leased: tuple[str, ...] = ()  # of the nodes across a network, those that it may be placed on
    snapshot: tuple[int, int] | None = None  # that nodes have recalled for it: the attempt that took it, and the step


class StopAttempt(Command, frozen=True):
    attempt_number: int
    graceful: bool


class ReplaceRank(Command, frozen=True):
    """Start another process in the place of a rank; end the one that may still be there."""

    attempt_number: int
    rank: int
    number: int  # of the attempt's replacements
    standby: int = 0  # the standby worker that takes it


class StartStandby(Command, frozen=True):
    """Start a process that runs the script up to where a replacement joins its peers, and waits there for a rank."""

    attempt_number: int
    number: int
    moves: bool = False  # a rank to another node with capacity


class TellPeersLost(Command, frozen=True):
    """Tell the survivors, which may wait in a collective for a peer that will never answer."""

    attempt_number: int
    number: int


class RegroupRanks(Command, frozen=True):
    """All ranks wait: let them form their group, send the state of the source to the ranks that need it, and
    continue."""

    attempt_number: int
    number: int
    source: int
    steps: tuple[int, ...]  # that each rank has completed; of a replacement, it does not count
    reports: int  # that the source has made
    made: tuple[int, ...]  # reports that are known of each rank
    replaced: tuple[int, ...]


class Gather(Command, frozen=True):
    """A checkpoint is whole: its nodes put its files together and remember it, in case the driver dies before it is in
    storage."""

    attempt_number: int
    index: int
    id: str
    report: int
    world_size: int
    ranks: tuple[int, ...]  # those that saved files
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
    ranks: tuple[int, ...]  # those that saved files
    validate: bool


class AskHandover(Command, frozen=True):
    """Tell the workers that their attempt is about to end, and ask them for a checkpoint at the next report."""

    attempt_number: int
    reason: HandoverReason
    nodes: tuple[str, ...]  # that will be taken away
    deadline_s: float | None
    number: int = 1


class DumpStacks(Command, frozen=True):
    """Write down what every rank is doing, and answer with StacksTaken."""

    attempt_number: int


class Rest(Command, frozen=True):
    """Place no worker on this node, if there are others; or do so again."""

    node: str
    on: bool


class Stall(Command, frozen=True):
    """Have workers wait before they stage more, or let them continue."""

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
    """Verify a snapshot in memory, and have it where the workers of the next attempt would be. The answer is Recalled
    or SnapshotLost."""

    snapshot: Snapshot
    world_size: int


class Quarantine(Command, frozen=True):
    id: str
    why: str


class Validate(Command, frozen=True):
    id: str


class SetTimer(Command, frozen=True):
    """Fire ``TimerFired(timer)`` after that many seconds; the same timer, set before, is replaced."""

    timer: Timer
    after_s: float


class CancelTimer(Command, frozen=True):
    timer: Timer


class Warn(Command, frozen=True):
    text: str


class Finish(Command, frozen=True):
    outcome: Outcome
    reason: str
