"""The state of one run, as plain frozen values. What must survive the driver is rebuilt from durable events."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from .failures import FailureKind


class Phase(str, Enum):
    IDLE = "idle"
    RESTORING = "restoring"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SETTLING = "settling"
    ENDED = "ended"


class Outcome(str, Enum):
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class RankStatus(str, Enum):
    STARTING = "starting"
    RUNNING = "running"
    RETURNED = "returned"
    DEAD = "dead"


class ValidationStatus(str, Enum):
    NONE = "COMMITTED"
    PENDING = "PENDING_VALIDATION"
    DONE = "VALIDATED"
    TIMEOUT = "VALIDATION_TIMEOUT"
    FAILED = "VALIDATION_FAILED"


class RunSpec(Struct, frozen=True):
    """The limits in force. A time of 0 switches its watch off."""

    num_workers: int = 1
    max_failures: int = 0
    max_preemption_failures: int = -1
    num_to_keep: int | None = None
    scored: bool = False
    score_order: str = "max"
    backoff_s: float = 0.5
    max_backoff_s: float = 60.0
    start_timeout_s: float = 300.0
    hang_timeout_s: float = 0.0
    stopped_grace_s: float = 2.0
    missing_warning_s: float = 30.0
    remote: bool = False  # storage is far away: checkpoints are uploaded behind training before they are committed
    sync_period_s: float = 0.0  # how long a whole checkpoint may wait for its upload


class CheckpointRecord(Struct, frozen=True):
    """A committed checkpoint: complete, in storage, and so far undamaged."""

    id: str
    report: int
    score: float | None = None
    validation: ValidationStatus = ValidationStatus.NONE


class Rank(Struct, frozen=True):
    status: RankStatus = RankStatus.STARTING
    reports: int = 0
    seen: float = 0.0  # when it last made progress
    stopped: bool = False


class Pending(Struct, frozen=True):
    """A checkpoint on its way: the shards of one report index of a group, by the ranks that brought them."""

    id: str
    report: int
    generation: int
    index: int
    world_size: int
    staged: frozenset[int] = frozenset()
    sealed: frozenset[int] = frozenset()
    uploaded: frozenset[int] = frozenset()
    awaited_by: frozenset[int] = frozenset()  # the ranks that wait until it is durable
    validate: bool = False
    gathered: bool = False
    due: bool = False  # it waits for its upload no longer
    uploading: bool = False
    lost: bool = False  # its nodes have it no more; all of it is in storage
    committing: bool = False

    @property
    def is_sealed(self) -> bool:
        return self.sealed == self.staged

    @property
    def is_uploaded(self) -> bool:
        return self.uploading and self.uploaded == self.staged


class Failure(Struct, frozen=True):
    """The first failure of a group; what its peers suffered after it is not counted."""

    generation: int
    rank: int
    kind: FailureKind
    text: str


class Verdict(str, Enum):
    """What follows when the group is gone."""

    RETRY = "retry"
    FAIL = "fail"
    STOP = "stop"
    FINISH = "finish"


class RunState(Struct, frozen=True):
    spec: RunSpec = RunSpec()
    phase: Phase = Phase.IDLE
    epoch: int = 0
    generation: int = 0
    base: int = 0
    resume: str | None = None
    verified: str | None = None  # what the next group may start from, as far as it has been looked at
    ranks: tuple[Rank, ...] = ()
    pending: dict[int, Pending] = {}  # the group's, by index
    carried: tuple[Pending, ...] = ()  # whole ones of earlier groups that are still being uploaded, the oldest first
    names: frozenset[str] = frozenset()  # ids that the group's checkpoints got, which no other may get
    sync_set: bool = False  # whether the end of the sync period is waited for
    stalled: bool = False  # workers wait in report() until storage has caught up
    missed: Pending | None = None  # the newest one that nodes lost since the group started
    cut_off: bool = False  # storage stayed away for too long: nothing is brought there any more
    given_up: frozenset[int] = frozenset()  # the group's reports that storage failed on; never committed in part
    checkpoints: tuple[CheckpointRecord, ...] = ()  # by report, the newest last
    damaged: frozenset[str] = frozenset()
    spent: dict[str, int] = {}  # failures so far, by budget
    streak: int = 0  # failures since the last commit
    failure: Failure | None = None
    verdict: Verdict | None = None
    outcome: Outcome | None = None

    @property
    def newest(self) -> CheckpointRecord | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def offer(self) -> CheckpointRecord | None:
        """What the next group resumes from: the newest that is committed, or whole and still on its nodes."""
        newest = self.newest
        staged = next((p for p in reversed(self.carried) if p.is_sealed), None)
        if staged is None or (newest is not None and newest.report >= staged.report):
            return newest
        return CheckpointRecord(staged.id, staged.report)

    @property
    def offer_to_verify(self) -> str | None:
        """Unless it is lost on its nodes and not committed yet: then nobody can tell."""
        lost = {pending.id for pending in self.carried if pending.lost}
        return self.offer.id if self.offer is not None and self.offer.id not in lost else None

    @property
    def unsaved(self) -> tuple[Pending, ...]:
        """Every checkpoint on its way, in the order of the reports."""
        return (*self.carried, *self.pending.values())

    @property
    def group_lives(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.RUNNING)

    def is_whole(self, pending: Pending) -> bool:
        """Whether nothing of it is missing any more, and all of it is hashed."""
        of_the_group = pending.generation == self.generation
        return pending.is_sealed and (not of_the_group or self.complete(pending.index))

    def complete(self, index: int) -> bool:
        """Whether every rank has made its report ``index``, or has returned."""
        return all(rank.reports > index or rank.status is RankStatus.RETURNED for rank in self.ranks)

    def missing(self, index: int) -> list[int]:
        return [
            r for r, rank in enumerate(self.ranks) if rank.reports <= index and rank.status is not RankStatus.RETURNED
        ]
