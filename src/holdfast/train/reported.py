"""What a run says about its checkpoints and about a coming preemption. Plain values, safe to pickle and compare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.train.checkpoint import Checkpoint


class CheckpointUploadMode(Enum):
    """How ``report()`` hands a checkpoint over.

    ASYNC (the default): return once the files are staged on this machine; hashing and the commit happen behind.
    SYNC: return once the checkpoint is committed to storage.
    NO_UPLOAD: the files are already where they belong; take them as they are.
    """

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(Enum):
    """What ``get_all_reported_checkpoints()`` waits for: that the last report is committed, or validated too."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(Enum):
    """Where a reported checkpoint stands. Every status but COMMITTED is about a validation that was asked for."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass
class ReportedCheckpoint:
    """A checkpoint that is safe in storage, the metrics that came with it, and its status."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus


@dataclass(frozen=True)
class PreemptionInfo:
    """Nodes that are about to be taken away.

    ``deadline_ms`` is the earliest deadline in UNIX milliseconds, None when the notice named none.
    ``preempted_node_to_ranks`` maps each such node to the world ranks that run on it.
    """

    deadline_ms: int | None
    preempted_node_to_ranks: dict[str, list[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})
