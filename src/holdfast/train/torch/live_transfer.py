"""A state goes from one rank to another over their group: small tensors together, large ones as they are."""

from __future__ import annotations

import pickle
from typing import Any

import torch

from holdfast.train.torch import state_parts
from holdfast.train.torch.live_group import LiveGroup

_LARGE = 1 << 20  # bytes


def send(group: LiveGroup, rank: int, captured: dict[str, Any]) -> None:
    """``captured`` is of plain values and tensors. It travels in memory, between two processes of one run."""
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> Any:
        tensors.append(tensor)
        return _Slot(len(tensors) - 1)

    tree = state_parts.tensors_mapped(captured, take)
    described = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    _send_bytes(group, rank, pickle.dumps((tree, described)))
    small = [_as_bytes(tensor) for tensor in tensors if not _is_large(tensor)]
    if small:
        group.send_to(torch.cat(small), rank)
    for tensor in tensors:
        if _is_large(tensor):
            group.send_to(_as_bytes(tensor), rank)


def receive(group: LiveGroup, rank: int) -> dict[str, Any]:
    tree, described = pickle.loads(_receive_bytes(group, rank))
    tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in described]
    small = [_as_bytes(tensor) for tensor in tensors if not _is_large(tensor)]
    if small:
        together = torch.empty(sum(part.numel() for part in small), dtype=torch.uint8)
        group.receive_from(together, rank)
        for part, got in zip(small, together.split([part.numel() for part in small]), strict=True):
            part.copy_(got)
    for tensor in tensors:
        if _is_large(tensor):
            group.receive_from(_as_bytes(tensor), rank)
    found: dict[str, Any] = _filled(tree, tensors)
    return found


class _Slot:
    """Where a tensor was."""

    def __init__(self, number: int) -> None:
        self.number = number


def _filled(tree: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(tree, _Slot):
        return tensors[tree.number]
    if isinstance(tree, dict):
        for key, value in tree.items():
            tree[key] = _filled(value, tensors)
        return tree
    if isinstance(tree, list | tuple) and not isinstance(tree, torch.Size):
        return type(tree)(_filled(value, tensors) for value in tree)
    return tree


def _is_large(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel() * tensor.element_size() >= _LARGE)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _send_bytes(group: LiveGroup, rank: int, data: bytes) -> None:
    group.send_to(torch.tensor([len(data)]), rank)
    group.send_to(torch.frombuffer(bytearray(data), dtype=torch.uint8), rank)


def _receive_bytes(group: LiveGroup, rank: int) -> bytes:
    size = torch.empty(1, dtype=torch.int64)
    group.receive_from(size, rank)
    data = torch.empty(int(size), dtype=torch.uint8)
    group.receive_from(data, rank)
    return bytes(data.numpy().tobytes())
