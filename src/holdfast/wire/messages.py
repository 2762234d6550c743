"""The messages between driver and agent. Small frozen structs, msgpack on the wire.

``node_messages`` has the messages about nodes. ``worker_messages`` and ``zygote_messages`` have those between an agent
and the processes below it. A ``body`` of bytes holds data that only the two ends understand (JSON of metrics, a
cloudpickle of an exception).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .message import Message as Message
from .node_messages import LeftReports as LeftReports
from .node_messages import NodeDraining as NodeDraining
from .node_messages import NodeJoining as NodeJoining
from .node_messages import NodeLost as NodeLost
from .node_messages import NodeReady as NodeReady
from .node_messages import NodeSeats as NodeSeats
from .node_messages import PlacesClear as PlacesClear
from .node_messages import Seat as Seat
from .peer_messages import DoorOpen as DoorOpen
from .peer_messages import Meet as Meet
from .peer_messages import Met as Met
from .peer_messages import OpenDoor as OpenDoor
from .peer_messages import Probe as Probe
from .peer_messages import Probed as Probed
from .snapshot_messages import OpenStore as OpenStore
from .snapshot_messages import PeerStore as PeerStore
from .snapshot_messages import Recall as Recall
from .snapshot_messages import Recalled as Recalled
from .snapshot_messages import Replicate as Replicate
from .snapshot_messages import SnapshotHeld as SnapshotHeld
from .snapshot_messages import StoreOpen as StoreOpen
from .standby_messages import EndRank as EndRank
from .standby_messages import PromoteStandby as PromoteStandby
from .standby_messages import StandbyHasEnded as StandbyHasEnded
from .standby_messages import StandbyIsReady as StandbyIsReady
from .standby_messages import StartStandby as StartStandby
from .standby_messages import WorkerIsArmed as WorkerIsArmed
from .task_messages import RunTask as RunTask
from .task_messages import TaskDone as TaskDone
from .worker_messages import (
    CheckpointCommitted,
    GoOn,
    HandoverAt,
    Notice,
    PeersLost,
    Place,
    Pressure,
    Raised,
    Reply,
    Report,
    SnapshotKept,
    WorkerRequest,
)

# Driver to agent


class Configure(Message, frozen=True, tag=True):
    """The first message. It holds what all workers of the session have in common."""

    node_id: str
    run_name: str
    run_dir: str  # where the run is stored; with remote storage, the parent of the node's directory
    payload: bytes  # a cloudpickle of the callable that a worker runs
    env: dict[bytes, bytes]  # bytes, because variables need not be text
    sys_path: list[bytes]
    argv: list[bytes]
    cwd: bytes
    essential: list[str]  # modules that a zygote imports before its first fork
    preload: list[str]  # modules that its successor imports after the first report
    start_method: str
    stop_grace_s: float
    metadata: dict[str, Any]
    validates: bool  # whether the run has a validation function
    storage: bytes = b""  # a cloudpickle of the run's Location, if that is remote
    run_key: str = ""  # the same for every driver of the run, different for all other runs
    epoch: int = 0  # the driver's epoch
    scratch: str = ""  # with remote storage: the user's private directory that run_dir lies in, on each machine
    patience_s: float = 0.0
    preemption_grace_s: float = 30.0  # the time from a SIGTERM to the agent until it exits
    node_timeout_s: float = 10.0  # after this much silence, driver and agent consider each other lost
    lockstep: bool = False  # report() returns when the driver says ``GoOn``
    rank_zero_only: bool = False  # the other ranks may not report
    preload_early: bool = False  # import ``preload`` as soon as workers have entered the train function
    imported: tuple[str, ...] = ()  # modules of the script; imported if a zygote can still fork safely after it


class StartWorkers(Message, frozen=True, tag=True):
    attempt_number: int
    world_size: int
    base: int
    checkpoint: str | None  # the id of the checkpoint to resume from; with remote storage, the node has fetched it
    places: list[Place]
    address: str = "127.0.0.1"  # where other nodes reach this one
    joins: int = 0  # not 0: the workers replace lost ranks whose peers live; the number of the replacement
    snapshot: tuple[int, int] | None = None  # the recalled snapshot: the attempt that took it, and its step
    taken_by: int = 0  # how many workers that attempt had


class StopWorkers(Message, frozen=True, tag=True):
    attempt_number: int
    graceful: bool


class Seal(Message, frozen=True, tag=True):
    """Hash the staged shards of these ranks and sync them to disk. One message answers for all of them."""

    attempt_number: int
    ranks: list[int]
    index: int


class Gather(Message, frozen=True, tag=True):
    """A checkpoint is complete: merge this node's part of it from these files of these ranks."""

    id: str
    attempt_number: int
    index: int
    manifest: bytes
    parts: list[tuple[int, list[str]]]


class Upload(Message, frozen=True, tag=True):
    """Upload the node's part of a gathered checkpoint."""

    id: str
    attempt_number: int
    index: int
    ranks: list[int]


class Fetch(Message, frozen=True, tag=True):
    """Make a checkpoint available to the node's workers, and verify it."""

    id: str
    manifest: bytes
    stored: bool = True  # whether storage has all of it
    number: int = 0  # the number of the question, which the answer repeats


class Forget(Message, frozen=True, tag=True):
    """Remove the staged files of a report, gathered or not."""

    attempt_number: int
    index: int
    id: str


class Sweep(Message, frozen=True, tag=True):
    """What an earlier driver left has been taken over: remove the files that attempts up to this one staged."""

    attempt_number: int


class DumpStacks(Message, frozen=True, tag=True):
    """Report the stacks of an attempt's workers, including hung ones."""

    attempt_number: int


class Ping(Message, frozen=True, tag=True):
    """The driver is alive."""

    number: int
    heard: int  # the newest answer that the driver has received


class Shutdown(Message, frozen=True, tag=True):
    pass


# Agent to driver


class Reports(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    reports: list[Report]
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class WorkerStarted(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    pid: int
    mark: str  # the mark of its temporary files, in addition to the pid


class WorkerIsReady(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class WorkerHasReturned(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    body: bytes
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class WorkerHasFailed(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    raised: Raised | None
    exit_code: int | None
    signal: int | None
    started: bool
    oom_killed: bool
    last_lines: list[str]
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class WorkerNoticed(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    reports: int
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class WorkerIsStopped(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    stopped: bool
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class WorkersGone(Message, frozen=True, tag=True):
    """No process of the attempt is left on the node."""

    attempt_number: int
    orders: int = 0  # how many orders to start processes the node has obeyed; 0: it does not count them


class Asked(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    request: WorkerRequest
    process: int = 0  # the number of the replacement that started the rank's process; 0: none


class Sealed(Message, frozen=True, tag=True):
    attempt_number: int
    rank: int
    index: int
    files: list[tuple[str, int, str, str]]
    error: str = ""


class NodeNews(Message, frozen=True, tag=True):
    """Events of several workers of a node at about the same time, so that the driver gets one message per node."""

    of: list[Reports | Sealed]


class StagedLost(Message, frozen=True, tag=True):
    """A checkpoint could not be gathered."""

    id: str
    why: str


class Uploaded(Message, frozen=True, tag=True):
    attempt_number: int
    index: int
    ranks: list[int]
    error: str = ""


class Fetched(Message, frozen=True, tag=True):
    id: str
    error: str = ""
    damaged: bool = False  # its content differs from its manifest; otherwise storage was unreachable
    number: int = 0


class Output(Message, frozen=True, tag=True):
    rank: int
    lines: list[str]


class Stacks(Message, frozen=True, tag=True):
    attempt_number: int
    texts: dict[int, str]  # by rank


class Pong(Message, frozen=True, tag=True):
    number: int


# Several runs may share an agent: the driver gives each a number. The run of ``Configure`` has no number.

RunOrder = (
    StartWorkers
    | StopWorkers
    | Seal
    | Gather
    | Upload
    | Fetch
    | Forget
    | Sweep
    | Pressure
    | RunTask
    | Reply
    | CheckpointCommitted
    | Notice
    | HandoverAt
    | GoOn
    | PeersLost
    | DumpStacks
    | Probe
    | OpenDoor
    | Meet
    | OpenStore
    | Replicate
    | Recall
    | SnapshotKept
    | StartStandby
    | PromoteStandby
    | EndRank
)
RunNews = (
    Reports
    | NodeNews
    | WorkerStarted
    | WorkerIsReady
    | WorkerIsArmed
    | StandbyIsReady
    | StandbyHasEnded
    | WorkerHasReturned
    | WorkerHasFailed
    | WorkerNoticed
    | WorkerIsStopped
    | WorkersGone
    | Asked
    | Sealed
    | StagedLost
    | Uploaded
    | Fetched
    | TaskDone
    | Output
    | Stacks
    | Probed
    | DoorOpen
    | Met
    | StoreOpen
    | SnapshotHeld
    | Recalled
    | NodeReady
)


class OpenRun(Message, frozen=True, tag=True):
    """Open a run in addition to the run of ``Configure``. The answer is the run's ``NodeReady``."""

    run: int
    configure: Configure


class InRun(Message, frozen=True, tag=True):
    run: int
    order: RunOrder


class CloseRun(Message, frozen=True, tag=True):
    """End the rest of the run. ``over``: the run ended normally, so earlier orders are still carried out."""

    run: int
    over: bool


class OfRun(Message, frozen=True, tag=True):
    run: int
    message: RunNews


def parts(message: Message) -> Iterator[Message]:
    """The messages inside this one; most messages hold only themselves."""
    match message:
        case NodeNews(of):
            yield from of
        case OfRun(run, NodeNews(of)):
            yield from (OfRun(run, one) for one in of)
        case _:
            yield message


class RunClosed(Message, frozen=True, tag=True):
    """The agent holds nothing of the run any more. This is also the answer if it does not know the run."""

    run: int


TO_AGENT = Configure | RunOrder | OpenRun | InRun | CloseRun | Ping | Shutdown
TO_DRIVER = RunNews | OfRun | RunClosed | Pong | NodeDraining
