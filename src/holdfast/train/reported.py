"""What a run reports about its checkpoints. Plain values, safe to pickle and compare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.train.checkpoint import Checkpoint


class CheckpointUploadMode(Enum):
    """How ``report()`` hands over a checkpoint.

    ASYNC (the default): return once the files are staged on this machine; hashing and the commit happen in the
    background.

    SYNC: return once the checkpoint is committed to storage.

    NO_UPLOAD: the files are already in the right place; use them as they are.
    """

    ASYNC = "ASYNC"
    SYNC = "SYNC"
    NO_UPLOAD = "NO_UPLOAD"

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(Enum):
    """Whether ``get_all_reported_checkpoints()`` waits until the last report is committed, or also validated."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(Enum):
    """The status of a reported checkpoint. Every status except COMMITTED is about a requested validation."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass
class ReportedCheckpoint:
    """A committed checkpoint, its metrics, and its status."""

    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus
