"""PyTorch training. Importing it imports torch, and keeps a snapshot of the process to fork workers from."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.engine.prefork import prefork
from holdfast.train.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from holdfast.train.torch.config import TorchConfig

if find_spec("torch") is None:
    raise ModuleNotFoundError(
        "holdfast.train.torch needs PyTorch, which is not installed: run pip install 'holdfast[torch]'", name="torch"
    )

if TYPE_CHECKING:
    from holdfast.train.torch.loop import (
        accelerate,
        backward,
        enable_reproducibility,
        get_device,
        get_devices,
        prepare_data_loader,
        prepare_model,
        prepare_optimizer,
    )
    from holdfast.train.torch.trainer import TorchTrainer

__all__ = [
    "CheckpointConfig",
    "FailureConfig",
    "RunConfig",
    "ScalingConfig",
    "TorchConfig",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "trainer" if name == "TorchTrainer" else "loop"
    return getattr(import_module(f"{__name__}.{module}"), name)


prefork([__name__, f"{__name__}.loop", "holdfast.train.payload", "holdfast.train.api", "holdfast.train.collective"])
