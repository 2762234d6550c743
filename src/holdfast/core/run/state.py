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
    due: bool = False  # it waits for its upload no longer
    uploading: bool = False
    refused: RankSet = RankSet()  # the ranks whose part is to be uploaded again
    lost: bool = False  # its nodes no longer have it; all of it is in storage
    committing: bool = False

    @property
    def is_sealed(self) -> bool:
        return self.sealed == self.staged

    @property
    def is_uploaded(self) -> bool:
        return self.uploading and self.uploaded == self.staged


class Snapshot(Struct, frozen=True):
    """A state in the memory of nodes: every rank of an attempt had completed this step, and of each piece a copy is
    there, as far as is known."""

    attempt_number: int
    step: int
    report: int  # the run's report number after which it was taken
    world_size: int
    moves: bool = True  # another number of workers can resume from it


class Tier(str, Enum):
    """Where an attempt took its state from."""

    NONE = ""  # the beginning
    MEMORY = "memory"  # of the attempt's own nodes
    PEER = "peer memory"  # some of it was another node's
    CHECKPOINT = "checkpoint"


class Failure(Struct, frozen=True):
    """The first failure of an attempt; knock-on failures of its peers are not counted."""

    attempt_number: int
    rank: int
    kind: FailureKind
    text: str
    instead: bool = False  # of one that turned out to follow from it


class Charge(Struct, frozen=True):
    """How an attempt's failure was counted, as long as the loss of a node may turn out to be its cause."""

    node: str  # that the rank was on
    same_error: tuple[str, int, int]  # before it was counted
    elsewhere: bool  # the loss of any other node may be the cause, too
    of_node: bool = True  # it was counted for its node


class Handover(Struct, frozen=True):
    """A planned end of the attempt: at the first checkpoint from report ``index`` on."""

    reason: HandoverReason
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # on those nodes
    index: int | None = None  # not known before all ranks know
    due: float | None = None  # when the first of the nodes goes
    number: int = 1  # of the attempt's notices, each of which replaces the previous one


class RankStanding(Struct, frozen=True):
    """Where a rank is that waits for its peers."""

    steps: int  # that it has completed
    reports: int
    joins: bool = False  # it takes the place of a rank that was lost, and has no state


class Regroup(Struct, frozen=True):
    """Survivors keep their processes, and wait until the ranks that were lost are replaced."""

    number: int  # of the attempt's replacements
    lost: frozenset[int] = frozenset()
    asked: dict[int, RankStanding] = {}  # the ranks that wait


class Standby(Struct, frozen=True):
    """A process that waits for a rank."""

    node: str = ""  # known when it is ready
    ready: bool = False
    rank: int = -1  # that it takes
    moves: int = -1  # the rank that it is kept for, whose node will be taken away

    @property
    def is_free(self) -> bool:
        return self.ready and self.rank < 0


class Move(Struct, frozen=True):
    """Ranks that are to be on other nodes before theirs are taken away."""

    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # that have not moved yet
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
    same_error: tuple[str, int, int] = ("", -1, 0)  # the last error of the script, its report, and how often it came
    node_failures: dict[str, int] = {}
    resting: frozenset[str] = frozenset()  # nodes that failed too often
    failure: Failure | None = None
    charge: Charge | None = None  # of that failure, as long as its cause is not certain
    verdict: Verdict | None = None
    cut_off: bool = False  # storage was unavailable for too long: nothing more is uploaded
    outcome: Outcome | None = None

    @property
    def newest(self) -> CheckpointRecord | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def is_undecided(self) -> bool:
        """Whether an attempt was started, and nothing has decided yet what follows it."""
        return self.attempt_size > 0 and self.verdict is None and self.outcome is None


class Attempt(Struct, frozen=True):
    """The state of the current attempt. It is dropped as soon as another one may follow."""

    ranks: Ranks
    started: float
    handover: Handover | None = None
    suspect: int | None = None  # a rank that seems to hang
    pending: dict[int, Pending] = {}  # its checkpoints, by index
    names: frozenset[str] = frozenset()  # ids that its checkpoints got, which no other may get
    given_up: frozenset[int] = frozenset()  # reports that storage failed on; never committed in part
    regroup: Regroup | None = None  # lost ranks are being replaced
    regroups: int = 0  # how many ranks were
    regrouped_at: int = -1  # the last step that was complete then
    standbys: dict[int, Standby] = {}  # by number
    move: Move | None = None
    standbys_started: int = 0
    standbys_lost: int = 0  # since one was ready
    standbys_rest: bool = False  # after a loss, until the wait has ended
    missed: Pending | None = None  # the newest checkpoint that nodes have lost since it started


class RunState(Struct, frozen=True):
    """``durable`` outlives the driver, ``attempt`` ends with its workers, and the rest ends with the driver."""

    durable: Durable = Durable()
    attempt: Attempt | None = None
    phase: Phase = Phase.IDLE
    snapshot: Snapshot | None = None  # the newest, of this attempt or of one before it that was resumed from
    recalled: Snapshot | None = None  # it is intact, and where the next attempt needs it
    is_moved: bool = False  # some of that had to come from other nodes
    began_at: tuple[int, int] | None = None  # the snapshot that the last attempt resumed from
    verified: str | None = None  # what the next attempt may start from, as far as it has been checked
    capacity: int | None = None  # how many workers can be placed; None: as many as are asked for
    lacking: bool = False  # the next attempt waits for capacity
    doubted: frozenset[str] = frozenset()  # nodes on which workers of an earlier driver may still live
    longest_gap: float = 0.0  # between two reports of a rank
    carried: tuple[Pending, ...] = ()  # whole ones of earlier attempts that are still being uploaded, the oldest first
    sync_set: bool = False  # whether the end of the sync period is waited for
    stalled: bool = False  # workers wait in report() until storage has caught up

    @classmethod
    def replayed(cls, durable: Durable) -> RunState:
        """The state of a run according to its journal: for an attempt, that it was started, and whether something has
        ended it."""
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
        """The checkpoint that the next attempt resumes from: the newest that is committed, or complete and still on its
        nodes."""
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
        """Unless it is lost on its nodes and not committed yet: then it is unknown."""
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
        """Whether the loss of a node of the attempt ends it, or may have ended it. An attempt has not ended before each
        of its nodes has confirmed that or is lost, so nothing has to wait for it."""
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
