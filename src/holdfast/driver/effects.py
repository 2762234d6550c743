"""The effects that the kernel requests, and the inputs that it gets, as small values. The runtime carries effects out
and feeds inputs back. The kernel returns the effects of a durable event only after it has handled the ``Journalled``
for that event.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from holdfast.core.run import events as ev
from holdfast.core.run.backpressure import Behind
from holdfast.core.run.state import Durable, RunState
from holdfast.store.manifests import Manifest, Shard
from holdfast.store.report_log import RankReports
from holdfast.wire.message import Message
from holdfast.wire.messages import Asked

Entries = Sequence[tuple[str, Mapping[str, Any]]]


class Now(NamedTuple):
    monotonic: float  # decides
    wall: float  # is only shown and stored


class Effect(Struct, frozen=True):
    pass


# Nodes


class Accept(Effect, frozen=True):
    """Send orders for this node to this agent from now on."""

    node: str
    pid: int


class Send(Effect, frozen=True):
    node: str
    message: Message


# The journal and the reports


class Journal(Effect, frozen=True):
    """Make these entries durable, then answer ``Journalled(number)``. Numbers are consecutive."""

    number: int
    entries: Entries


class WriteReports(Effect, frozen=True):
    attempt_number: int
    rank: int
    lines: bytes


class ReadLogs(Effect, frozen=True):
    """Read what these ranks logged; answer ``LogsRead`` before any other input."""

    attempt_number: int
    paths: Mapping[int, Path]  # by rank


class WriteStacks(Effect, frozen=True):
    """Save the stacks of a hung attempt, and show a summary."""

    attempt_number: int
    text: str
    summary: Sequence[str]


class MeasureDisk(Effect, frozen=True):
    """Answer ``DiskMeasured`` before any other input."""


# Checkpoints


class Commit(Effect, frozen=True):
    """Answered with the event Committed, CommitFailed or UploadFailed."""

    manifest: Manifest
    shards: Sequence[Shard]  # the ranks' files, on a disk that the driver reaches; otherwise storage already has them


class Verify(Effect, frozen=True):
    """Answered with Verified or Damaged; with ``ManifestFound`` if nodes have to fetch the files to verify them."""

    id: str


class Delete(Effect, frozen=True):
    id: str


class Quarantine(Effect, frozen=True):
    id: str
    why: str


class DiscardStaged(Effect, frozen=True):
    """Remove what ranks staged for a report on the disk of the run."""

    attempt_number: int
    index: int
    world_size: int


class Collect(Effect, frozen=True):
    """Remove objects from remote storage that existed at the start and belong to no checkpoint that is kept."""

    keep: Collection[str]


class Adopt(Effect, frozen=True):
    """Commit checkpoints of an earlier driver's nodes; answered with ``AdoptedHere`` or ``Lacking``."""

    manifest: Manifest
    reports: Sequence[RankReports]


class NoteAdopted(Effect, frozen=True):
    """These checkpoints of an earlier driver have just been committed. ``state``: the state before that."""

    manifests: Sequence[Manifest]
    state: Durable


class TellLateReports(Effect, frozen=True):
    """Tell the callback of reports that are safe with the adopted checkpoints."""


# Requests of workers


class ListCheckpoints(Effect, frozen=True):
    """Answered with ``Answered``, and with Damaged for each checkpoint that cannot be read."""

    asked: Asked
    listed: Sequence[tuple[str, str, Mapping[str, Any]]]  # id, status, and the results of the validation


class GiveShard(Effect, frozen=True):
    """Split a dataset for a rank; answered with ``Answered``."""

    asked: Asked
    nodes: Sequence[str]  # by rank


# People and callbacks


class Stepped(Effect, frozen=True):
    """A step is about to be acted on. If it is durable, it is in the journal."""

    event: ev.Event
    before: RunState
    after: RunState
    behind: Behind
    action: str = ""  # the reaction to a new failure
    failures: Mapping[int, Exception] | None = None  # for the callback


class CallBack(Effect, frozen=True):
    number: int
    metrics: list[dict[str, Any]]
    checkpoint: str | None


class ShowProgress(Effect, frozen=True):
    report: int
    line: bytes


class ShowOutput(Effect, frozen=True):
    rank: int
    lines: Sequence[str]


class ShowAttempt(Effect, frozen=True):
    attempt_number: int
    world_size: int
    joined: tuple[str, ...] = ()  # nodes that the last attempt did not have
    left: tuple[str, ...] = ()  # nodes that only the last attempt had


class ShowBackoff(Effect, frozen=True):
    seconds: float


class Warn(Effect, frozen=True):
    text: str


# Inputs. Others are events of the core (from storage and signals) and (node, message) pairs from the engine


class Begin(NamedTuple):
    """The nodes are asked for."""


class NodesAnnounced(NamedTuple):
    """The engine has said which nodes are on their way at the start."""


class Journalled(NamedTuple):
    number: int


class LogsRead(NamedTuple):
    attempt_number: int
    logs: Mapping[int, RankReports]


class DiskMeasured(NamedTuple):
    free: int  # bytes


class ManifestFound(NamedTuple):
    id: str
    line: bytes


class AdoptedHere(NamedTuple):
    event: ev.Committed
    manifest: Manifest


class Lacking(NamedTuple):
    manifest: Manifest
    paths: Sequence[str]  # that storage does not have


class Answered(NamedTuple):
    asked: Asked
    body: bytes
    error: str = ""


Input = (
    Begin
    | NodesAnnounced
    | Journalled
    | LogsRead
    | DiskMeasured
    | ManifestFound
    | AdoptedHere
    | Lacking
    | Answered
    | ev.Event
    | tuple[str, Message]
)
