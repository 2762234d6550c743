"""A data loader whose batches are copied to a device in advance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from holdfast.data.tensors import apply_to_tensors, to_device


class DeviceLoader:
    """A data loader whose batches are on ``device``. With ``ahead`` the next batch is copied on a separate stream while
    the current one is used. Every other attribute is the data loader's."""

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
        apply_to_tensors(batch, lambda tensor: tensor.record_stream(current))
        return batch
