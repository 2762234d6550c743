"""A pickle of plain containers and values alone: reading it can create no other object and call nothing.

Tensors are not in it. The writer says for each of them where it is, and the reader finds it there.
"""

from __future__ import annotations

import collections
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "Counter"): collections.Counter,
    ("builtins", "complex"): complex,
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
}


class _PlainPickler(pickle.Pickler):
    def __init__(self, into: io.BytesIO, place: Callable[[torch.Tensor], Any]) -> None:
        super().__init__(into, protocol=5)
        self._place = place

    def persistent_id(self, thing: Any) -> Any:
        return self._place(thing) if isinstance(thing, torch.Tensor) else None


class _PlainUnpickler(pickle.Unpickler):
    def __init__(self, description: bytes, found: Callable[[Any], torch.Tensor]) -> None:
        super().__init__(io.BytesIO(description))
        self._found = found

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f"{module}.{name} is not a plain value; keep only numbers, text, tensors, lists and dicts in it"
            )
        return _KNOWN[module, name]

    def persistent_load(self, place: Any) -> torch.Tensor:
        return self._found(place)


def describe_tree(tree: Any, place: Callable[[torch.Tensor], Any]) -> bytes:
    """``place``: where a tensor is, in plain values."""
    into = io.BytesIO()
    _PlainPickler(into, place).dump(tree)
    return into.getvalue()


def read_tree(description: bytes, found: Callable[[Any], torch.Tensor]) -> Any:
    """``found``: the tensor of a place."""
    return _PlainUnpickler(description, found).load()
