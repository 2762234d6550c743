"""Batches of torch tensors, however nested: collated, cast, and copied to a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate


def torch_collate(items: list[Any]) -> Any:
    return default_collate(items)


def torch_columns(batch: Any) -> Any:
    """A dict of numpy arrays as one of tensors, without a copy where that can be; a single array as a tensor."""
    if isinstance(batch, Mapping):
        return {name: torch_columns(array) for name, array in batch.items()}
    if batch.dtype.hasobject:  # a column of lists
        return torch.as_tensor(np.stack([np.asarray(item) for item in batch]))
    return torch.as_tensor(batch)


def tensor_maker(dtypes: Any, collate_fn: Callable[[Any], Any] | None, pin_memory: bool) -> Callable[[Any], Any]:
    """From a batch of numpy arrays, or of what ``collate_fn`` takes, to one of tensors."""
    if collate_fn is not None and dtypes is not None:
        raise ValueError("iter_torch_batches(): pass either dtypes or collate_fn, not both")

    def make(batch: Any) -> Any:
        made = to_dtypes(torch_columns(batch), dtypes) if collate_fn is None else collate_fn(batch)
        return pinned(made) if pin_memory else made

    return make


def pinned(batch: Any) -> Any:
    return apply_to_tensors(batch, lambda tensor: tensor.pin_memory())


def to_device(batch: Any, device: Any, non_blocking: bool = False) -> Any:
    """The batch with each tensor on ``device``; everything else stays as it is."""
    return apply_to_tensors(batch, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def to_dtypes(batch: Any, dtypes: Any) -> Any:
    """The batch cast to one dtype, or each column that ``dtypes`` names cast to its own."""
    if dtypes is None:
        return batch
    if isinstance(dtypes, Mapping):
        if not isinstance(batch, Mapping):
            raise TypeError(f"iter_torch_batches(dtypes={dtypes!r}): a dict needs items that are dicts; pass one dtype")
        return {key: to_dtypes(value, dtypes.get(key)) for key, value in batch.items()}
    return apply_to_tensors(batch, lambda tensor: tensor.to(dtypes))


def apply_to_tensors(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The batch with each of its tensors changed, however they are nested."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: apply_to_tensors(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(apply_to_tensors(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(apply_to_tensors(value, change) for value in batch)
    return batch
