"""A state goes from one rank to another over their group: small tensors together, large ones as they are."""

from __future__ import annotations

import json
from typing import Any

import torch

from holdfast.train.torch.live_group import LiveGroup
from holdfast.train.torch.plain_pickle import describe_tree, read_tree

_LARGE = 1 << 20  # bytes


def send(group: LiveGroup, rank: int, captured: dict[str, Any]) -> None:
    """``captured`` is of plain values and tensors. It travels in memory, between two processes of one run."""
    tensors: list[torch.Tensor] = []

    def place(tensor: torch.Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    tree = describe_tree(captured, place)
    described = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    _send_bytes(group, rank, json.dumps(described).encode())
    _send_bytes(group, rank, tree)
    small = [_as_bytes(tensor) for tensor in tensors if not _is_large(tensor)]
    if small:
        group.send_to(torch.cat(small), rank)
    for tensor in tensors:
        if _is_large(tensor):
            group.send_to(_as_bytes(tensor), rank)


def receive(group: LiveGroup, rank: int) -> dict[str, Any]:
    """Others can reach the ports of a group, which does not authenticate: what comes is read as plain values alone."""
    described = json.loads(_receive_bytes(group, rank))
    tree = _receive_bytes(group, rank)
    tensors = [torch.empty(shape, dtype=_dtype(name)) for name, shape in described]
    small = [_as_bytes(tensor) for tensor in tensors if not _is_large(tensor)]
    if small:
        together = torch.empty(sum(part.numel() for part in small), dtype=torch.uint8)
        group.receive_from(together, rank)
        for part, got in zip(small, together.split([part.numel() for part in small]), strict=True):
            part.copy_(got)
    for tensor in tensors:
        if _is_large(tensor):
            group.receive_from(_as_bytes(tensor), rank)
    found: dict[str, Any] = read_tree(tree, tensors.__getitem__)
    return found


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is not a type of tensors")
    return found


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
