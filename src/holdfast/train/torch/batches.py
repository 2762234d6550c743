"""Batches of tensors, however nested: collated, cast, and brought to a device ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import default_collate


def torch_collate(items: list[Any]) -> Any:
    return default_collate(items)


def torch_columns(batch: Any) -> Any:
    """A dict of numpy arrays as one of tensors, without a copy where that can be; a single array as a tensor."""
    if isinstance(batch, Mapping):
        return {name: torch_columns(array) for name, array in batch.items()}
    if batch.dtype.hasobject:  # a column of lists
        return torch.stack([torch.as_tensor(item) for item in batch])
    return torch.as_tensor(batch)


def pinned(batch: Any) -> Any:
    return _apply(batch, lambda tensor: tensor.pin_memory())


def to_device(batch: Any, device: Any, non_blocking: bool = False) -> Any:
    """The batch with each tensor on ``device``; what is no tensor stays as it is."""
    return _apply(batch, lambda tensor: tensor.to(device, non_blocking=non_blocking))


def to_dtypes(batch: Any, dtypes: Any) -> Any:
    """The batch cast to one dtype, or each column that ``dtypes`` names cast to its own."""
    if dtypes is None:
        return batch
    if isinstance(dtypes, Mapping):
        if not isinstance(batch, Mapping):
            raise TypeError(f"iter_torch_batches(dtypes={dtypes!r}): a dict needs items that are dicts; pass one dtype")
        return {key: to_dtypes(value, dtypes.get(key)) for key, value in batch.items()}
    return _apply(batch, lambda tensor: tensor.to(dtypes))


def _apply(batch: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: _apply(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_apply(value, change) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_apply(value, change) for value in batch)
    return batch


class DeviceLoader:
    """A data loader whose batches are on ``device``. With ``ahead`` the next batch is copied on a stream of its own
    while the current one is used. Every other attribute is the data loader's."""

    def __init__(self, loader: Any, device: torch.device, ahead: bool) -> None:
        self._loader = loader
        self.device = device
        self._ahead = ahead and device.type == "cuda"

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        if not self._ahead:
            return (to_device(batch, self.device) for batch in self._loader)
        return self._copied_ahead()

    def _copied_ahead(self) -> Iterator[Any]:
        stream = torch.cuda.Stream(self.device)
        waiting: list[Any] = []
        for batch in self._loader:
            with torch.cuda.stream(stream):
                copied = to_device(batch, self.device, non_blocking=True)
            if waiting:
                yield self._taken_over(waiting.pop(), stream)
            waiting.append(copied)
        if waiting:
            yield self._taken_over(waiting.pop(), stream)

    def _taken_over(self, batch: Any, stream: Any) -> Any:
        """The training stream waits for the copy, and the memory is not reused before it is done with it."""
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(stream)
        _apply(batch, lambda tensor: tensor.record_stream(current))
        return batch
