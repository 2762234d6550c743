"""What a torch train function calls so that the same code runs on one worker and on many, on CPU and on GPU."""

from __future__ import annotations

import inspect
import logging
import os
import random
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from holdfast.train.api import session_for
from holdfast.train.checks import warn_once
from holdfast.train.torch.batches import DeviceLoader

logger = logging.getLogger(__name__)


def get_device() -> torch.device:
    """The device of this worker; the first one if it has several."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """The devices of this worker: the GPUs that were given to it, else the CPU."""
    given = session_for("torch.get_devices").devices
    return [torch.device("cuda", index) for index in given] or [torch.device("cpu")]


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> torch.nn.Module:
    """Move the model to this worker's device and, with more than one worker, wrap it in DistributedDataParallel
    ("ddp"), FullyShardedDataParallel ("fsdp") or nothing (None)."""
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f'prepare_model(parallel_strategy={parallel_strategy!r}): use "ddp", "fsdp" or None')
    session = session_for("torch.prepare_model")
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if move_to_device:
        model = model.to(device)
    if parallel_strategy is None or session.world_size == 1:
        return model
    kwargs = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        return _fsdp(model, device, kwargs)
    if device.type == "cuda":
        kwargs = {"device_ids": [device], "output_device": device, **kwargs}
    return torch.nn.parallel.DistributedDataParallel(model, **kwargs)


def _fsdp(model: torch.nn.Module, device: torch.device, kwargs: dict[str, Any]) -> torch.nn.Module:
    if device.type != "cuda":
        raise RuntimeError(
            'prepare_model(parallel_strategy="fsdp") needs GPUs: set ScalingConfig(use_gpu=True), or use "ddp" on CPUs'
        )
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, **kwargs)


def prepare_data_loader(
    data_loader: DataLoader[Any],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> DataLoader[Any]:
    """Give each worker its part of the data, and bring batches to its device.

    With more than one worker the loader's sampler becomes a DistributedSampler, which shuffles if the loader did; every
    other option stays. Call ``loader.sampler.set_epoch(epoch)`` before each epoch for a new order. A loader with a
    DistributedSampler, or over an IterableDataset (which splits its own stream), stays as it is.
    ``auto_transfer`` copies the next batch to the GPU while this one is used; it does nothing on a CPU.
    """
    session = session_for("torch.prepare_data_loader")
    if add_dist_sampler and session.world_size > 1:
        data_loader = _distributed(data_loader, session.rank, session.world_size)
    device = get_device()
    if not move_to_device or device.type == "cpu":
        return data_loader
    on_device: Any = DeviceLoader(data_loader, device, auto_transfer)
    return on_device


def _distributed(loader: DataLoader[Any], rank: int, world_size: int) -> DataLoader[Any]:
    if isinstance(loader.dataset, IterableDataset):
        if rank == 0:
            warn_once(
                "iterable dataset",
                "prepare_data_loader() cannot split an IterableDataset: each worker iterates all of it, unless it "
                "splits itself by holdfast.train.get_context().get_world_rank()",
            )
        return loader
    if isinstance(loader.sampler, DistributedSampler):
        return loader
    if loader.batch_size is None and loader.batch_sampler is not None:
        if isinstance(getattr(loader.batch_sampler, "sampler", None), DistributedSampler):
            return loader
        raise ValueError(
            f"prepare_data_loader() cannot split a loader with a batch_sampler of its own "
            f"({type(loader.batch_sampler).__name__}): let it draw from a DistributedSampler, or pass "
            "add_dist_sampler=False and split the batches by holdfast.train.get_context().get_world_rank()"
        )
    if rank == 0 and not isinstance(loader.sampler, (SequentialSampler, RandomSampler)):
        logger.warning(
            "prepare_data_loader() replaces the %s by a DistributedSampler; keep it with add_dist_sampler=False",
            type(loader.sampler).__name__,
        )
    shuffle = not isinstance(loader.sampler, SequentialSampler)
    sampler = DistributedSampler(loader.dataset, num_replicas=world_size, rank=rank, shuffle=shuffle)
    return DataLoader(**_options(loader), sampler=sampler)


def _options(loader: DataLoader[Any]) -> dict[str, Any]:
    """All that the loader was made with but its sampling, whatever options this version of torch knows."""
    sampling = ("self", "shuffle", "sampler", "batch_sampler")
    return {
        name: getattr(loader, name)
        for name in inspect.signature(DataLoader.__init__).parameters
        if name not in sampling and hasattr(loader, name)
    }


def enable_reproducibility(seed: int = 0) -> None:
    """Seed torch, Python and NumPy, and let torch use deterministic algorithms only."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def accelerate(amp: bool = False) -> NoReturn:
    _refuse("accelerate", amp)


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> NoReturn:
    _refuse("prepare_optimizer", optimizer)


def backward(tensor: torch.Tensor) -> NoReturn:
    _refuse("backward", tensor)


def _refuse(name: str, _: Any) -> NoReturn:
    raise NotImplementedError(
        f"holdfast.train.torch.{name}() is not offered: use torch.amp (autocast and GradScaler) directly for mixed "
        "precision, and the optimizer and loss.backward() as they are"
    )
