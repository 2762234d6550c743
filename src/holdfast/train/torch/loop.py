"""Functions for a torch train function, so that the same code runs on one worker and on many, on CPU and on GPU."""

from __future__ import annotations

import os
import random
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader

from holdfast.train.api import session_for
from holdfast.train.torch.batches import DeviceLoader
from holdfast.train.torch.elastic import ElasticLoader
from holdfast.train.torch.split import split_loader


def get_device() -> torch.device:
    """Return the device of this worker; the first one if it has several."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """Return the devices of this worker: its GPUs, otherwise the CPU."""
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
    """Give each worker its part of the data, and copy batches to its device.

    The returned loader yields this worker's share of every global batch: ``batch_size`` from each worker, or as an
    ``ElasticSampler`` or ``ElasticStream`` defines. Save ``loader.state_dict()`` in the checkpoint.
    ``loader.load_state_dict(state)`` then resumes after the last consumed batch, with the same global batch, whatever
    the number of workers: no sample is skipped or repeated. Each epoch has a different order, determined by
    ``loader.set_epoch(epoch)`` (or ``loader.sampler.set_epoch``); without it, epochs count from 0. Every other option
    of the loader is kept. A loader with a DistributedSampler, or over an IterableDataset, is not changed.
    ``auto_transfer`` copies the next batch to the GPU while this one is used; it does nothing on a CPU.
    """
    session = session_for("torch.prepare_data_loader")
    split = split_loader(data_loader, session.early_rank, session.world_size) if add_dist_sampler else None
    if split is not None:
        session.place.follow(split.source)
    inner: Any = data_loader if split is None else split.loader
    device = get_device()
    if move_to_device and device.type != "cpu":
        inner = DeviceLoader(inner, device, auto_transfer)
    return inner if split is None else ElasticLoader(inner, split.source, data_loader, split.keep_batch)


def enable_reproducibility(seed: int = 0) -> None:
    """Seed torch, Python and NumPy, and make torch use only deterministic algorithms."""
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
    """Raise ``NotImplementedError``: use ``torch.amp`` directly."""
    _refuse("accelerate", amp)


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> NoReturn:
    """Raise ``NotImplementedError``: use the optimizer as it is."""
    _refuse("prepare_optimizer", optimizer)


def backward(tensor: torch.Tensor) -> NoReturn:
    """Raise ``NotImplementedError``: call ``loss.backward()``."""
    _refuse("backward", tensor)


def _refuse(name: str, _: Any) -> NoReturn:
    raise NotImplementedError(
        f"holdfast.train.torch.{name}() is not supported: use torch.amp (autocast and GradScaler) directly for mixed "
        "precision, and the optimizer and loss.backward() as they are"
    )
