"""PyTorch training. Importing it imports torch, and keeps a snapshot of the process to fork workers from."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.engine.prefork import prefork
from holdfast.train.config import CheckpointConfig, FailureConfig, RunConfig
from holdfast.train.scaling_config import ScalingConfig
from holdfast.train.torch.torch_config import PRELOAD, TorchConfig

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
    from holdfast.train.torch.rng import SeededDataset, rng_state, seed_rng, set_rng_state
    from holdfast.train.torch.sampler import ElasticSampler
    from holdfast.train.torch.stream import ElasticStream
    from holdfast.train.torch.torch_checkpoint import TorchCheckpoint
    from holdfast.train.torch.torch_trainer import TorchTrainer
    from holdfast.train.torch.train_state import TrainState

__all__ = [
    "CheckpointConfig",
    "ElasticSampler",
    "ElasticStream",
    "FailureConfig",
    "RunConfig",
    "ScalingConfig",
    "SeededDataset",
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "TrainState",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_devices",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
    "rng_state",
    "seed_rng",
    "set_rng_state",
]

_MODULES = {
    "ElasticSampler": "sampler",
    "ElasticStream": "stream",
    "SeededDataset": "rng",
    "TorchCheckpoint": "torch_checkpoint",
    "TorchTrainer": "torch_trainer",
    "TrainState": "train_state",
    "rng_state": "rng",
    "seed_rng": "rng",
    "set_rng_state": "rng",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'loop')}"), name)


prefork(
    TorchConfig.essential,
    [
        __name__,
        f"{__name__}.loop",
        f"{__name__}.train_state",
        f"{__name__}.live_step",  # a replacement needs it immediately
        "holdfast.train.payload",
        "holdfast.train.api",
        "holdfast.train.collective",
    ],
    slow=PRELOAD,
)
