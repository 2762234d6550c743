"""The messages between driver and agent. Small frozen structs, msgpack on the wire.

``node_messages`` has what is said of nodes; ``worker_messages`` and ``zygote_messages`` have what an agent and the
processes below it say to each other. ``body`` fields that are bytes hold what only the two ends understand (JSON of
metrics, a cloudpickle of an exception).
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
from .worker_messages import Durable, GoOn, HandoverAt, Notice, Place, Pressure, Raised, Reply, Report, Request

# Driver to agent


class Configure(Message, frozen=True, tag=True):
    """The first message: what all workers of the session have in common."""

    node_id: str
    run_name: str
    run_dir: str  # where the run is stored; with remote storage, where a node's own directory for it goes
    payload: bytes  # a cloudpickle of the callable that a worker runs
    env: dict[bytes, bytes]  # bytes, as the system has them: they need not be text
    sys_path: list[bytes]
    argv: list[bytes]
    cwd: bytes
    essential: list[str]  # modules that a zygote imports before its first fork
    preload: list[str]  # modules that its successor imports behind the first report
    start_method: str
    stop_grace_s: float
    metadata: dict[str, Any]
    validates: bool  # whether the run has a validation function
    storage: bytes = b""  # a cloudpickle of the run's Location, if that is remote
    storage_url: str = ""
    run_key: str = ""  # the same for every driver of the run, and for no other run
    epoch: int = 0  # of the driver
    scratch: str = ""  # with remote storage: the user's private directory that run_dir lies in, on each machine
    patience_s: float = 0.0
    preemption_grace_s: float = 30.0  # from a SIGTERM to the agent until it ends
    node_timeout_s: float = 10.0  # of silence, after which driver and agent take each other for gone
    lockstep: bool = False  # report() returns when the driver says ``GoOn``


class StartWorkers(Message, frozen=True, tag=True):
    generation: int
    world_size: int
    base: int
    checkpoint: str | None  # the id of what the group resumes from; with remote storage the node has fetched it
    places: list[Place]
    address: str = "127.0.0.1"  # where other nodes reach this one


class StopWorkers(Message, frozen=True, tag=True):
    generation: int
    graceful: bool


class Seal(Message, frozen=True, tag=True):
    """Hash a staged shard and force it to disk."""

    generation: int
    rank: int
    index: int


class Gather(Message, frozen=True, tag=True):
    """A checkpoint is whole: put together the node's part of it, from these files of these ranks."""

    id: str
    generation: int
    index: int
    manifest: bytes
    parts: list[tuple[int, list[str]]]


class Upload(Message, frozen=True, tag=True):
    """Bring what the node has of a gathered checkpoint into storage."""

    id: str
    generation: int
    index: int
    ranks: list[int]


class Fetch(Message, frozen=True, tag=True):
    """Have a checkpoint ready for the node's workers, and verify it."""

    id: str
    manifest: bytes
    stored: bool = True  # whether storage has all of it


class Forget(Message, frozen=True, tag=True):
    """Remove the staged files of a report, gathered or not."""

    generation: int
    index: int
    id: str


class Sweep(Message, frozen=True, tag=True):
    """An earlier driver is gone, and what it left is taken up: remove what attempts up to this one staged."""

    generation: int


class RunTask(Message, frozen=True, tag=True):
    """Run a callable in a process of its own, beside the workers."""

    task: str
    payload: bytes
    timeout_s: float | None


class DumpStacks(Message, frozen=True, tag=True):
    """Say where the workers of a group are in their code, hung ones too."""

    generation: int


class Probe(Message, frozen=True, tag=True):
    """Say whether the machine is fit to train on."""


class OpenDoor(Message, frozen=True, tag=True):
    """Let another node of the run call, so that the two see whether they can talk; answered with ``DoorOpen``."""

    meeting: int
    address: str  # the node's own, as others know it


class Meet(Message, frozen=True, tag=True):
    """Call another node's door; answered with ``Met``."""

    meeting: int
    address: str
    port: int
    token: bytes


class Ping(Message, frozen=True, tag=True):
    """The driver lives."""

    number: int
    heard: int  # the newest answer that it has got


class Shutdown(Message, frozen=True, tag=True):
    pass


# Agent to driver


class Reports(Message, frozen=True, tag=True):
    generation: int
    rank: int
    reports: list[Report]


class NodeReports(Message, frozen=True, tag=True):
    """What several workers of a node reported at about the same time. The driver's end of the line takes it apart."""

    of: list[Reports]


class WorkerStarted(Message, frozen=True, tag=True):
    generation: int
    rank: int
    pid: int
    mark: str  # of its temporary files, beside the pid


class WorkerIsReady(Message, frozen=True, tag=True):
    generation: int
    rank: int


class WorkerHasReturned(Message, frozen=True, tag=True):
    generation: int
    rank: int
    body: bytes


class WorkerHasFailed(Message, frozen=True, tag=True):
    generation: int
    rank: int
    raised: Raised | None
    exit_code: int | None
    signal: int | None
    started: bool
    oom_killed: bool
    last_lines: list[str]


class WorkerNoticed(Message, frozen=True, tag=True):
    generation: int
    rank: int
    reports: int


class WorkerIsStopped(Message, frozen=True, tag=True):
    generation: int
    rank: int
    stopped: bool


class WorkersGone(Message, frozen=True, tag=True):
    generation: int


class Asked(Message, frozen=True, tag=True):
    generation: int
    rank: int
    request: Request


class Sealed(Message, frozen=True, tag=True):
    generation: int
    rank: int
    index: int
    files: list[tuple[str, int, str, str]]
    error: str = ""


class StagedLost(Message, frozen=True, tag=True):
    """A checkpoint could not be gathered."""

    id: str
    why: str


class Uploaded(Message, frozen=True, tag=True):
    generation: int
    index: int
    ranks: list[int]
    error: str = ""


class Fetched(Message, frozen=True, tag=True):
    id: str
    error: str = ""
    damaged: bool = False  # it is not what its manifest says; else storage could not be reached


class TaskDone(Message, frozen=True, tag=True):
    task: str
    body: bytes
    error: str = ""
    timed_out: bool = False


class Output(Message, frozen=True, tag=True):
    rank: int
    lines: list[str]


class Stacks(Message, frozen=True, tag=True):
    generation: int
    texts: dict[int, str]  # by rank


class Probed(Message, frozen=True, tag=True):
    ok: bool
    findings: list[str]  # what is wrong


class DoorOpen(Message, frozen=True, tag=True):
    meeting: int
    port: int
    token: bytes
    error: str = ""


class Met(Message, frozen=True, tag=True):
    meeting: int
    error: str = ""  # why the two cannot talk


class Pong(Message, frozen=True, tag=True):
    number: int


# Runs that share an agent: each has a number of the driver's choice; the agent's own, of ``Configure``, has none

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
    | Durable
    | Notice
    | HandoverAt
    | GoOn
    | DumpStacks
    | Probe
    | OpenDoor
    | Meet
)
RunNews = (
    Reports
    | NodeReports
    | WorkerStarted
    | WorkerIsReady
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
    | NodeReady
)


class OpenRun(Message, frozen=True, tag=True):
    """A run beside the agent's own, which has been configured before; answered with the run's ``NodeReady``."""

    run: int
    configure: Configure


class InRun(Message, frozen=True, tag=True):
    run: int
    order: RunOrder


class CloseRun(Message, frozen=True, tag=True):
    """End what is left of the run. ``over``: it ended in good order, and what it was told before is still done."""

    run: int
    over: bool


class OfRun(Message, frozen=True, tag=True):
    run: int
    message: RunNews


def parts(message: Message) -> Iterator[Message]:
    """The messages that it is made of; most are one."""
    match message:
        case NodeReports(of):
            yield from of
        case OfRun(run, NodeReports(of)):
            yield from (OfRun(run, reports) for reports in of)
        case _:
            yield message


class RunClosed(Message, frozen=True, tag=True):
    """Nothing of the run is left in the agent; also the answer if it knows of no such run."""

    run: int


TO_AGENT = Configure | RunOrder | OpenRun | InRun | CloseRun | Ping | Shutdown
TO_DRIVER = RunNews | OfRun | RunClosed | Pong | NodeDraining
