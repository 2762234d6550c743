"""``TorchTrainer``: a data-parallel trainer whose workers are in one process group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.train.checkpoint import Checkpoint
from holdfast.train.config import RunConfig
from holdfast.train.data_config import DataConfig
from holdfast.train.scaling_config import ScalingConfig
from holdfast.train.torch.torch_config import TorchConfig
from holdfast.train.trainer import DataParallelTrainer
from holdfast.train.validation import ValidationConfig


class TorchTrainer(DataParallelTrainer):
    """Trains with PyTorch: runs ``train_loop_per_worker`` on every worker, inside a torch process group."""

    config_argument = "torch_config"

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        if torch_config is not None and not isinstance(torch_config, TorchConfig):
            raise TypeError(f"TorchTrainer(torch_config={torch_config!r}): pass a holdfast.train.torch.TorchConfig")
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=torch_config or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )
