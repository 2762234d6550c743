"""The state of one run, as plain frozen values, apart by how long they live: see RunState."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from holdfast.core.failures import FailureKind
from holdfast.core.run.ranks import Rank as Rank
from holdfast.core.run.ranks import Ranks as Ranks
from holdfast.core.run.ranks import RankSet as RankSet
from holdfast.core.run.ranks import RankStatus as RankStatus
from holdfast.core.run.run_spec import RunSpec as RunSpec


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


class HandoverReason(str, Enum):
    RESIZE = "resize"
    PREEMPTION = "preemption"
    STOP = "stop"


class ValidationStatus(str, Enum):
    NONE = "COMMITTED"
    PENDING = "PENDING_VALIDATION"
    DONE = "VALIDATED"
    TIMEOUT = "VALIDATION_TIMEOUT"
    FAILED = "VALIDATION_FAILED"


class CheckpointRecord(Struct, frozen=True):
    """A committed checkpoint: complete, in storage, and so far undamaged."""

    id: str
    report: int
    score: float | None = None
    validation: ValidationStatus = ValidationStatus.NONE


class Pending(Struct, frozen=True):
    """A pending checkpoint: the shards of one report index of an attempt, by the ranks that saved them."""

    id: str
    report: int
    attempt_number: int
    index: int
    world_size: int
    staged: RankSet = RankSet()
    sealed: RankSet = RankSet()
    uploaded: RankSet = RankSet()
    awaited_by: RankSet = RankSet()  # the ranks that wait for the commit
    validate: bool = False
    gathered: bool = False
    due: bool = False  # it need not wait for the end of the sync period
    uploading: bool = False
    refused: RankSet = RankSet()  # the ranks whose parts must be uploaded again
    lost: bool = False  # its nodes no longer have it, but storage has all of it
    committing: bool = False

    @property
    def is_sealed(self) -> bool:
        return self.sealed == self.staged

    @property
    def is_uploaded(self) -> bool:
        return self.uploading and self.uploaded == self.staged


class Snapshot(Struct, frozen=True):
    """The state after a step, in the memory of nodes. Every rank of the attempt completed that step, and as far as is
    known a copy of each piece exists."""

    attempt_number: int
    step: int
    report: int  # the run's report number after which it was taken
    world_size: int
    moves: bool = True  # another number of workers can resume from it


class Tier(str, Enum):
    """Where an attempt took its state from."""

    NONE = ""  # the beginning
    MEMORY = "memory"  # of the attempt's own nodes
    PEER = "peer memory"  # some of it came from another node
    CHECKPOINT = "checkpoint"


class Failure(Struct, frozen=True):
    """The first failure of an attempt; knock-on failures of its peers are not counted."""

    attempt_number: int
    rank: int
    kind: FailureKind
    text: str
    instead: bool = False  # it replaces a failure that turned out to be a knock-on failure of this one


class Charge(Struct, frozen=True):
    """How an attempt's failure was counted. It is kept while the loss of a node may still turn out to be the cause."""

    node: str  # the node of the failed rank
    same_error: tuple[str, int, int]  # the value of Durable.same_error before the failure was counted
    elsewhere: bool  # the loss of another node may be the cause, too
    of_node: bool = True  # it was counted as a failure of that node


class Handover(Struct, frozen=True):
    """A planned end of the attempt: at the first checkpoint from report ``index`` on."""

    reason: HandoverReason
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # on those nodes
    index: int | None = None  # None until all ranks know of the handover
    due: float | None = None  # when the first of the nodes is removed
    number: int = 1  # the number of the notice; each notice replaces the previous one


class RankStanding(Struct, frozen=True):
    """How far a rank came that waits for its peers."""

    steps: int  # completed by this rank
    reports: int
    joins: bool = False  # it replaces a lost rank and has no state yet


class Regroup(Struct, frozen=True):
    """Survivors keep their processes and wait until the lost ranks are replaced."""

    number: int  # counts the replacements of the attempt
    lost: frozenset[int] = frozenset()
    asked: dict[int, RankStanding] = {}  # the ranks that wait


class Standby(Struct, frozen=True):
    """A process that waits for a rank."""

    node: str = ""  # known when it is ready
    ready: bool = False
    rank: int = -1  # the rank that it takes, -1 if none yet
    moves: int = -1  # the rank for which it is reserved, because that rank's node will be removed

    @property
    def is_free(self) -> bool:
        return self.ready and self.rank < 0


class Move(Struct, frozen=True):
    """Ranks that must move to other nodes before their own nodes are removed."""

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # those that have not moved yet
    due: float | None = None


class Verdict(str, Enum):
    """What follows after the attempt has ended; None if all its ranks have returned."""

    RETRY = "retry"
    FAIL = "fail"
    STOP = "stop"


_NONE: Mapping[int, Pending] = {}
_NO_RANKS = Ranks()


class Durable(Struct, frozen=True):
    """The state that survives the driver. Only durable events change it."""

    spec: RunSpec = RunSpec()
    epoch: int = 0
    attempt_number: int = 0
    attempt_size: int = 0  # of the last attempt; 0 before the driver has started one
    base: int = 0
    resume: str | None = None
    leases: dict[str, float] = {}  # by node: how long workers there may outlive their driver
    checkpoints: tuple[CheckpointRecord, ...] = ()  # by report, the newest last
    damaged: frozenset[str] = frozenset()
    spent: dict[str, int] = {}  # failures so far, by budget
    streak: int = 0  # failures since the last commit
    same_error: tuple[str, int, int] = ("", -1, 0)  # the last error of the script, its report, and its count
    node_failures: dict[str, int] = {}
    resting: frozenset[str] = frozenset()  # nodes that failed too often
    failure: Failure | None = None
    charge: Charge | None = None  # how that failure was counted, while its cause is uncertain
    verdict: Verdict | None = None
    cut_off: bool = False  # storage was unavailable for too long: uploads have stopped
    outcome: Outcome | None = None

    @property
    def newest(self) -> CheckpointRecord | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def is_undecided(self) -> bool:
        """Whether an attempt was started and it is not yet decided what follows."""
        return self.attempt_size > 0 and self.verdict is None and self.outcome is None


class Attempt(Struct, frozen=True):
    """The state of the current attempt. It is dropped as soon as another one may follow."""

    ranks: Ranks
    started: float
    handover: Handover | None = None
    suspect: int | None = None  # a rank that seems to hang
    pending: dict[int, Pending] = {}  # its checkpoints, by index
    names: frozenset[str] = frozenset()  # ids of its checkpoints, which no other checkpoint may get
    given_up: frozenset[int] = frozenset()  # reports that storage failed on; never committed in part
    regroup: Regroup | None = None  # lost ranks are being replaced
    regroups: int = 0  # how many ranks were replaced so far
    regrouped_at: int = -1  # the last step that was complete at the last regrouping
    standbys: dict[int, Standby] = {}  # by number
    move: Move | None = None
    standbys_started: int = 0
    standbys_lost: int = 0  # since one was ready
    standbys_rest: bool = False  # no standby is started until the pause after a loss is over
    missed: Pending | None = None  # the newest checkpoint that nodes lost during this attempt


class RunState(Struct, frozen=True):
    """``durable`` outlives the driver, ``attempt`` ends with its workers, and the rest ends with the driver."""

    durable: Durable = Durable()
    attempt: Attempt | None = None
    phase: Phase = Phase.IDLE
    snapshot: Snapshot | None = None  # the newest of this attempt, or an earlier one that it resumed from
    recalled: Snapshot | None = None  # verified, and copied to the nodes of the next attempt
    is_moved: bool = False  # some of the recalled snapshot came from other nodes
    began_at: tuple[int, int] | None = None  # the snapshot that the last attempt resumed from
    verified: str | None = None  # the checkpoint that was verified for the next attempt
    capacity: int | None = None  # how many workers can be placed; None: as many as are asked for
    lacking: bool = False  # the next attempt waits for capacity
    doubted: frozenset[str] = frozenset()  # nodes on which workers of an earlier driver may still live
    longest_gap: float = 0.0  # the longest pause between two reports of a rank
    carried: tuple[Pending, ...] = ()  # complete checkpoints of earlier attempts, still being uploaded, oldest first
    sync_set: bool = False  # the timer for the end of the sync period is set
    stalled: bool = False  # workers wait in report() until storage has caught up

    @classmethod
    def replayed(cls, durable: Durable) -> RunState:
        """The state of a run according to its journal. Of an attempt, the journal knows only that it started and
        whether something ended it."""
        if durable.outcome is not None or not durable.attempt_size:
            return cls(durable, phase=Phase.IDLE if durable.outcome is None else Phase.ENDED)
        attempt = Attempt(Ranks.alike(Rank(), durable.attempt_size), started=0.0)
        return cls(durable, attempt, Phase.STARTING if durable.verdict is None else Phase.STOPPING)

    @property
    def spec(self) -> RunSpec:
        return self.durable.spec

    @property
    def attempt_number(self) -> int:
        return self.durable.attempt_number

    @property
    def base(self) -> int:
        return self.durable.base

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        return self.durable.checkpoints

    @property
    def newest(self) -> CheckpointRecord | None:
        return self.durable.newest

    @property
    def failure(self) -> Failure | None:
        return self.durable.failure

    @property
    def verdict(self) -> Verdict | None:
        return self.durable.verdict

    @property
    def ranks(self) -> Ranks:
        return _NO_RANKS if self.attempt is None else self.attempt.ranks

    @property
    def pending(self) -> Mapping[int, Pending]:
        return _NONE if self.attempt is None else self.attempt.pending

    @property
    def handover(self) -> Handover | None:
        return None if self.attempt is None else self.attempt.handover

    @property
    def offer(self) -> CheckpointRecord | None:
        """The checkpoint that the next attempt resumes from: the newest one that is committed, or that is complete and
        still on its nodes."""
        newest = self.newest
        staged = next((p for p in reversed(self.carried) if p.is_sealed), None)
        if staged is None or (newest is not None and newest.report >= staged.report):
            return newest
        return CheckpointRecord(staged.id, staged.report)

    @property
    def memory(self) -> Snapshot | None:
        """The snapshot that the next attempt resumes from; None if the durable checkpoint is newer, or if the snapshot
        does not fit the next attempt."""
        kept, size = self.snapshot, self.world_size
        if kept is None or size is None or (self.offer is not None and self.offer.report > kept.report):
            return None
        return kept if kept.moves or kept.world_size == size else None

    @property
    def offer_to_verify(self) -> str | None:
        """The id of ``offer``. None if its nodes lost it before it was committed: then it is unknown whether it
        exists."""
        lost = {pending.id for pending in self.carried if pending.lost}
        return self.offer.id if self.offer is not None and self.offer.id not in lost else None

    @property
    def unsaved(self) -> tuple[Pending, ...]:
        """Every checkpoint on its way, in the order of the reports."""
        return self.carried if self.attempt is None else (*self.carried, *self.attempt.pending.values())

    @property
    def has_unsaved(self) -> bool:
        return bool(self.carried or (self.attempt is not None and self.attempt.pending))

    @property
    def world_size(self) -> int | None:
        """The number of workers of the next attempt; None if they do not fit."""
        least = self.spec.min_workers or self.spec.num_workers
        room = self.spec.num_workers if self.capacity is None else min(self.spec.num_workers, self.capacity)
        return room if room >= least else None

    @property
    def attempt_lives(self) -> bool:
        return self.phase is Phase.RUNNING or self.phase is Phase.STARTING

    @property
    def minds_lost_nodes(self) -> bool:
        """Whether the loss of one of its nodes ends the attempt, or may be what ended it. This delays nothing: an
        attempt ends only when each of its nodes has confirmed that or is lost."""
        return self.attempt_lives or (self.phase is Phase.STOPPING and self.durable.charge is not None)

    def is_whole(self, pending: Pending) -> bool:
        """Whether it is complete, and all of it is hashed."""
        if pending.sealed.bits != pending.staged.bits:
            return False
        of_the_attempt = pending.attempt_number == self.durable.attempt_number
        return not of_the_attempt or self.complete(pending.index)

    def complete(self, index: int) -> bool:
        """Whether every rank that reports has made its report ``index``, or has returned."""
        return self.ranks.have_made(index)
