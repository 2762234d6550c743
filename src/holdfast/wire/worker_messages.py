"""Messages between an agent and a worker. The assignment comes first; the agent forwards the others from the driver."""

from __future__ import annotations

from typing import Any

from msgspec import field

from .message import Message

# To the worker


class Offer(Message, frozen=True, tag=True):
    """A checkpoint for a worker, with the directory of its files on this machine; empty if they are not here."""

    id: str
    directory: str


class Place(Message, frozen=True, tag=True):
    """One worker's place in its attempt."""

    rank: int
    local_rank: int
    local_world_size: int
    node_rank: int
    cpus: float = 1.0
    devices: list[int] = field(default_factory=list)  # the indices of its GPUs among those that it sees
    sees: str = ""  # its CUDA_VISIBLE_DEVICES; empty: the node's


class Memory(Message, frozen=True, tag=True):
    """Where a worker keeps snapshots of its state in memory, and what it resumes from there, if anything."""

    directory: str  # the directory of this run on this node
    step: int = -1
    world_size: int = 0  # of the attempt that took the snapshot
    pieces: dict[str, str] = field(default_factory=dict)  # the files of the snapshot that are on this node, by piece


class SnapshotKept(Message, frozen=True, tag=True):
    """The snapshot of this step is complete on all ranks, and copied: earlier ones may be overwritten. Forwarded to the
    workers."""

    attempt_number: int
    step: int
    given_up: bool = False  # this snapshot will never be complete; ``complete`` says which one to keep
    complete: tuple[int, int] | None = None  # the newest complete snapshot: attempt and step


class Assignment(Message, frozen=True, tag=True):
    """The first message that a worker gets."""

    attempt_number: int
    world_size: int
    base: int
    place: Place
    node_id: str
    run_name: str
    run_dir: str
    storage: bytes  # as in Configure
    offer: Offer | None
    env: dict[bytes, bytes]
    sys_path: list[bytes]
    argv: list[bytes]
    cwd: bytes
    metadata: dict[str, Any]
    validates: bool
    mark: str  # the mark of its temporary files, in addition to the pid
    address: str = "127.0.0.1"
    lockstep: bool = False
    rank_zero_only: bool = False
    joins: int = 0  # not 0: the worker replaces a lost rank; the number of the replacement
    memory: Memory | None = None
    standby: int = 0  # not 0: the worker is a standby without a rank; its number


class TakeRank(Message, frozen=True, tag=True):
    """A standby takes the place of a rank that was lost."""

    place: Place
    joins: int
    offer: Offer | None
    memory: Memory | None


class Reply(Message, frozen=True, tag=True):
    """The answer to a worker's request. The agent forwards it."""

    attempt_number: int
    rank: int
    request: int
    body: bytes
    error: str = ""
    process: int = 0  # the process of the rank that asked


class CheckpointCommitted(Message, frozen=True, tag="Durable"):
    """A checkpoint was committed. The agent adds its directory and forwards this to the workers."""

    attempt_number: int
    id: str
    index: int = -1  # of its report, for the metrics
    offer: Offer | None = None


class Pressure(Message, frozen=True, tag=True):
    """``on``: storage lags, so workers wait before they stage more. Off: it has caught up. Forwarded to the workers."""

    on: bool


class Notice(Message, frozen=True, tag=True):
    """The attempt is about to end. Forwarded to its workers, each of which answers with ``Noticed``."""

    attempt_number: int
    deadline_ms: int | None  # in UNIX milliseconds
    nodes: dict[str, list[int]]  # the nodes that will be removed, with their ranks


class HandoverAt(Message, frozen=True, tag=True):
    """All ranks know of the end. A rank that saves files at this report or later waits. Forwarded to the workers."""

    attempt_number: int
    index: int


class PeersLost(Message, frozen=True, tag=True):
    """A rank was lost and is being replaced: no rank may wait for it in a collective. Forwarded to the workers."""

    attempt_number: int
    number: int


class GoOn(Message, frozen=True, tag=True):
    """In lockstep: the worker's reports up to this one may return. ``save``: its next report must bring a checkpoint.
    Forwarded to the worker."""

    attempt_number: int
    rank: int
    index: int
    save: bool = False


# From the worker


class Report(Message, frozen=True, tag=True):
    index: int
    line: bytes  # the report as a line of the metrics file
    staged: bool = False
    name: str | None = None
    validation: bytes = b""  # JSON of the validation's arguments; empty if no validation was requested
    urgent: bool = False  # the worker waits for the commit
    # Files that the user stored: path, size, digest, place
    elsewhere: list[tuple[str, int, str, str]] = field(default_factory=list)


class Noticed(Message, frozen=True, tag=True):
    """The worker knows that its attempt is about to end, and has made this many reports."""

    reports: int


class StandsBy(Message, frozen=True, tag=True):
    """A standby has reached the point in its code where it needs a rank."""


class Armed(Message, frozen=True, tag=True):
    """The worker can repeat its step if a peer is lost."""


class TookSnapshot(Message, frozen=True, tag="Snapshot"):
    """The worker has written its state after a step into these files. Without files, it skips this snapshot."""

    step: int
    reports: int = 0  # made before the snapshot
    moves: bool = True  # another number of workers can resume from it
    pieces: dict[str, str] = field(default_factory=dict)  # files by piece
    keep: tuple[int, int] | None = None  # the newest complete snapshot (attempt, step): no copy of it is overwritten
    alike: bytes = b""  # a digest of what must be the same on all ranks if another number of workers is to resume


class Ready(Message, frozen=True, tag=True):
    pass


class Returned(Message, frozen=True, tag=True):
    body: bytes


class Raised(Message, frozen=True, tag=True):
    at: float
    kind: str
    message: str
    traceback: str
    body: bytes
    started: bool
    out_of_memory: bool = False


class WorkerRequest(Message, frozen=True, tag="Request"):
    request: int
    kind: str
    body: bytes
    index: int  # reports that the rank had made


TO_WORKER = (
    Assignment
    | Reply
    | CheckpointCommitted
    | Pressure
    | Notice
    | HandoverAt
    | GoOn
    | PeersLost
    | SnapshotKept
    | TakeRank
)
FROM_WORKER = Report | TookSnapshot | Ready | Returned | Raised | WorkerRequest | Noticed | Armed | StandsBy
