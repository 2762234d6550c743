"""What a run says about its checkpoints. Plain values, safe to pickle and compare."""

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
