"""The imports of a training script. Importing it is fast: no torch, and the trainer only on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
    WorkerGroupError,
)
from holdfast.train.api import (
    checkpoint_requested,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
)
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.config import (
    BackendConfig,
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    SyncConfig,
)
from holdfast.train.context import TrainContext
from holdfast.train.data import TRAIN_DATASET_KEY, DataShard
from holdfast.train.data_config import DataConfig
from holdfast.train.reported import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from holdfast.train.result import Result
from holdfast.train.scaling_config import ScalingConfig
from holdfast.train.user_callback import TrainRunContext, UserCallback
from holdfast.train.validation import ValidationConfig, ValidationFn, ValidationTaskConfig

if TYPE_CHECKING:
    from holdfast.train import collective
    from holdfast.train.trainer import DataParallelTrainer

__all__ = [
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "DataParallelTrainer",
    "DataShard",
    "FailureConfig",
    "LoggingConfig",
    "NCCLHangError",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TRAIN_DATASET_KEY",
    "TrainContext",
    "TrainRunContext",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "collective",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "checkpoint_requested",
    "get_preemption_info",
    "report",
]


def __getattr__(name: str) -> Any:
    if name == "DataParallelTrainer":
        from holdfast.train.trainer import DataParallelTrainer

        return DataParallelTrainer
    if name == "collective":
        import importlib

        return importlib.import_module("holdfast.train.collective")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
