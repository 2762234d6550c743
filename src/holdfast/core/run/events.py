"""Events. Small frozen structs; a durable one is journalled before it is acted on, and replayed at a restart."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, to_builtins
from msgspec.json import Decoder

from holdfast.core.failures import Evidence
from holdfast.core.run.state import (
    CheckpointRecord,
    HandoverReason,
    Outcome,
    RankStanding,
    RunSpec,
    Snapshot,
    Tier,
    ValidationStatus,
)
from holdfast.core.run.timers import Timer


class Event(Struct, frozen=True, rename={"attempt_number": "generation", "attempt_gone": "group_gone"}):
    """In a journal an attempt's number is its ``generation``, as the first releases called it."""

    durable: ClassVar[bool] = False
    recorded_as: ClassVar[str] = ""  # its name in journals, if that differs from the name of the class


class DriverStarted(Event, frozen=True):
    """A driver has taken the run over. Processes of an earlier driver may still run only on unreachable nodes."""

    durable = True
    epoch: int
    spec: RunSpec
    clear: tuple[str, ...] = ()  # nodes on which no process of an earlier attempt is left
    waited_s: float = 0.0  # for how long the earlier driver has been known to be dead
    stops: bool = False  # a stop was requested before the start: StopAsked follows, and nothing is started


class AttemptStarted(Event, frozen=True):
    """An attempt will start. This is journalled before its processes start, so no later driver reuses its number."""

    durable = True
    recorded_as = "GroupStarted"
    attempt_number: int
    world_size: int
    resume: str | None
    base: int  # the attempt's reports follow this report of the run
    leased: tuple[str, ...] = ()  # the nodes across a network that it may be placed on
    tier: Tier = Tier.NONE  # where its state comes from
    snapshot: tuple[int, int] | None = None  # if from memory: the attempt that took the snapshot, and its step
    streak: int = -1  # failures without progress so far; -1: unchanged
    redone: int = 0  # completed steps that it repeats, as far as is known


class WorkerReady(Event, frozen=True):
    """The worker entered the train function."""

    attempt_number: int
    rank: int
    process: int = 0  # which process of the rank: the number of its replacement, 0 for the first


class Progressed(Event, frozen=True):
    """The rank has made this many reports since its attempt started."""

    attempt_number: int
    rank: int
    reports: int


class ShardStaged(Event, frozen=True):
    """The rank's report number ``index`` (from 0) has files, which are staged on its node."""

    attempt_number: int
    rank: int
    index: int
    name: str | None = None
    validate: bool = False
    urgent: bool = False  # the worker waits for the commit


class ShardSealed(Event, frozen=True):
    """The staged files are hashed, and synced if that makes them durable."""

    attempt_number: int
    rank: int
    index: int


class ShardFailed(Event, frozen=True):
    durable = True
    attempt_number: int
    rank: int
    index: int
    message: str


class ShardUploaded(Event, frozen=True):
    """The rank's files in the checkpoint are uploaded."""

    attempt_number: int
    rank: int
    index: int


class UploadFailed(Event, frozen=True):
    """Storage could not be reached for as long as the settings allow. The staged files are untouched."""

    durable = True
    attempt_number: int
    index: int
    message: str
    ranks: tuple[int, ...] = ()  # the ranks whose parts were not uploaded; empty if only the commit failed


class StorageLags(Event, frozen=True):
    """Storage is behind training. ``stalled``: it is so far behind that reports with files wait for it."""

    durable = True
    stalled: bool
    checkpoints: int
    bytes: int
    seconds: float  # how long the oldest checkpoint has been waiting


class StagedLost(Event, frozen=True):
    """A checkpoint that was not uploaded yet is lost on the nodes that had it, or damaged there."""

    id: str
    why: str


class SnapshotTaken(Event, frozen=True):
    """Every rank of the attempt has completed this step, and nodes have the state in memory."""

    snapshot: Snapshot


class SnapshotLost(Event, frozen=True):
    """No node has an intact copy of a piece of the snapshot."""

    attempt_number: int
    step: int
    why: str
    instead: Snapshot | None = None  # an earlier one that is still there


class Recalled(Event, frozen=True):
    """The snapshot is intact, and each node has the parts that the workers of the next attempt need there."""

    attempt_number: int
    step: int
    is_moved: bool  # some of it came from other nodes


class WorkerReturned(Event, frozen=True):
    attempt_number: int
    rank: int
    process: int = 0  # which process of the rank: the number of its replacement, 0 for the first


class WorkerFailed(Event, frozen=True):
    durable = True
    attempt_number: int
    rank: int
    evidence: Evidence
    node: str = ""
    at: int = -1  # the number of the run's last report before it failed
    live: bool = False  # it is replaced while its peers keep their processes
    follows: bool = False  # it failed because a rank was lost that is being replaced
    standby: int = 0  # the standby worker that takes its rank


class WorkerArmed(Event, frozen=True):
    """The rank runs recoverable steps: it can repeat its step if a peer is lost."""

    attempt_number: int
    rank: int
    process: int = 0  # which process of the rank: the number of its replacement, 0 for the first


class StandbyReady(Event, frozen=True):
    """A standby worker has run the script up to ``resume()`` and waits for a rank."""

    durable = True
    attempt_number: int
    number: int
    node: str


class StandbyLost(Event, frozen=True):
    """A standby worker ended before it had a rank."""

    durable = True
    attempt_number: int
    number: int
    why: str


class RankMoved(Event, frozen=True):
    """The node of a rank will be preempted: a standby on another node takes the rank, and the others continue."""

    durable = True
    attempt_number: int
    rank: int
    standby: int
    node: str
    leased: tuple[str, ...] = ()  # that node, if it is reached over a network


class RegroupAsked(Event, frozen=True):
    """The rank has lost a peer or replaces one, and waits until all ranks form a group again."""

    attempt_number: int
    rank: int
    standing: RankStanding
    process: int = 0  # which process of the rank: the number of its replacement, 0 for the first


class Regrouped(Event, frozen=True):
    """All ranks continue. Replacements have the state of the most advanced survivor."""

    durable = True
    attempt_number: int
    number: int
    steps: int  # how many steps are complete
    source: int  # the rank whose state counts
    reports: int  # how many reports that rank had made
    replaced: tuple[int, ...]
    progressed: bool = True  # whether steps were completed since the last regrouping
    by_standby: tuple[int, ...] = ()  # the replaced ranks that standby workers took


class RegroupFailed(Event, frozen=True):
    """The attempt ends, because its survivors and the replacement did not form a group."""

    durable = True
    attempt_number: int
    why: str


class Capacity(Event, frozen=True):
    """How many workers can be placed now, including those of the current attempt."""

    slots: int


class CapacityLacking(Event, frozen=True):
    """The capacity is too small for the next attempt's minimum, so it waits."""

    durable = True
    least: int
    room: int


class NodeClear(Event, frozen=True):
    """No process of an earlier driver's attempt is left on this node."""

    node: str


class NodeDrains(Event, frozen=True):
    """A node is going to be removed. ``ranks`` of the current attempt run on it."""

    node: str
    deadline_s: float
    ranks: tuple[int, ...]
    free: int = 0  # how many more workers fit on other nodes


class HandoverSet(Event, frozen=True):
    """All ranks know of the handover. From report ``index`` on, a rank that saves files with a report waits there."""

    attempt_number: int
    index: int
    number: int = 1  # the number of the notice that they know


class HandedOver(Event, frozen=True):
    """The attempt ends as planned: at a checkpoint of all its ranks, or before any rank made a report."""

    durable = True
    attempt_number: int
    reason: HandoverReason


class StacksTaken(Event, frozen=True):
    """The stacks of an attempt that seems to hang have been saved; ``rank`` seems to be the cause."""

    durable = True
    attempt_number: int
    rank: int = -1


class NodeRested(Event, frozen=True):
    """A node that had failed often is given another chance."""

    durable = True
    node: str


class WorkerStopped(Event, frozen=True):
    """A signal stopped the process (SIGSTOP), or let it continue."""

    attempt_number: int
    rank: int
    stopped: bool
    process: int = 0  # which process of the rank: the number of its replacement, 0 for the first


class AttemptGone(Event, frozen=True):
    """Every process of the attempt has ended, and all that they said before has been delivered."""

    attempt_number: int


class Committed(Event, frozen=True):
    durable = True
    record: CheckpointRecord
    attempt_number: int = 0
    index: int = -1  # -1: found in storage by a restarting driver, not committed by this one
    validation: Any = None  # the arguments of the validation; not inspected


class CommitFailed(Event, frozen=True):
    durable = True
    attempt_number: int
    index: int
    message: str


class Verified(Event, frozen=True):
    id: str


class Damaged(Event, frozen=True):
    """A committed checkpoint differs from its manifest, or is missing. It is never offered again."""

    durable = True
    id: str
    why: str


class Adopted(Event, frozen=True):
    """Between two drivers, the run got another run's checkpoint to resume from, and lost its own later ones."""

    durable = True
    record: CheckpointRecord


class Validated(Event, frozen=True):
    durable = True
    id: str
    status: ValidationStatus
    score: float | None = None
    metrics: Any = None  # the results of the validation; not inspected


class Several(Event, frozen=True):
    """Events of several workers, processed as one step. None of them is durable."""

    events: tuple[WorkerReady | Progressed | ShardStaged | ShardSealed | ShardUploaded | WorkerReturned, ...]


class TimerFired(Event, frozen=True):
    timer: Timer


class StopAsked(Event, frozen=True):
    """Durable, so that a replay does not mistake the workers that it ended for failures."""

    durable = True
    at_once: bool = False
    grace_s: float = 0.0  # how long the workers may continue for a last checkpoint


class RunEnded(Event, frozen=True):
    durable = True
    outcome: Outcome
    reason: str
    attempt_gone: bool = False  # all nodes have said that no worker is left


def name_in_journal(kind: type[Event]) -> str:
    return kind.recorded_as or kind.__name__


def journalled(event: Event) -> tuple[str, dict[str, Any]]:
    """The kind and the body of the event's record in a journal."""
    return name_in_journal(type(event)), to_builtins(event)


DURABLE: dict[str, type[Event]] = {name_in_journal(kind): kind for kind in Event.__subclasses__() if kind.durable}
for _kind in DURABLE.values():
    Decoder(_kind)  # msgspec must know the type before two threads use it at the same time, or it crashes
