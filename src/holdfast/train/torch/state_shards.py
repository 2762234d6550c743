"""Shards of DTensors with their places in the whole tensors, so that another number of ranks can take its own parts.

A rank's state holds its shards as plain tensors, with a list that says where each of them begins. Nothing is gathered:
a rank that resumes copies what overlaps with its own shards from the shards of all ranks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from holdfast.train.torch import state_parts

Offset = tuple[int, ...]
Places = Sequence[Offset | None]  # of the tensors of a state, in their order; None for one that every rank has whole


def can_be_cut(parts: Mapping[str, Any]) -> bool:
    """Whether each shard is one block of its tensor: then any number of ranks can take parts of it."""
    names = state_parts.sharded_names(parts)
    if not names:
        return True
    from torch.distributed.tensor import Replicate, Shard

    blocks = (Shard, Replicate)
    tensors = (parameter for name in names for parameter in state_parts.parameters_of(parts[name]))
    placements = (placement for tensor in tensors for placement in getattr(tensor, "placements", ()))
    return all(type(placement) in blocks for placement in placements)


def places_of(state: Any) -> list[Offset | None]:
    """Where this rank's part of each tensor begins in the whole tensor."""
    return [_offset(tensor) for tensor in _tensors(state)]


def fill_own(target: Any, shard: torch.Tensor) -> Any:
    """With the shard that this rank had itself."""
    if not isinstance(target, torch.Tensor):
        return shard
    _own_part(target).copy_(shard)
    return target


def taken(parts: Mapping[str, Any], saved: Sequence[tuple[Any, Places]]) -> Any:
    """The sharded states by name, with this rank's parts of what all ranks saved, whatever their number was."""
    first = saved[0][0]
    of_ranks = zip(*(zip(_tensors(states), places, strict=True) for states, places in saved), strict=True)
    found = {id(tensor): shards for tensor, shards in zip(_tensors(first), of_ranks, strict=True)}

    def fill(target: Any, shard: torch.Tensor) -> Any:
        shards = found[id(shard)]
        if shards[0][1] is None:
            return fill_own(target, shard)
        if not isinstance(target, torch.Tensor):
            raise ValueError("TrainState.resume(): the state in memory has shards that this one has not")
        into = _own_part(target)
        if not copy_overlaps(into, _offset(target) or (0,) * into.dim(), shards):
            raise ValueError("TrainState.resume(): the shards in memory are not a whole tensor")
        return target

    return state_parts.filled(parts, first, fill)


def copy_overlaps(into: torch.Tensor, begin: Offset, shards: Iterable[tuple[torch.Tensor, Offset | None]]) -> bool:
    """Fill the block that begins there in the whole tensor; False if the shards do not have all of it."""
    missing = int(into.numel())
    known: set[Offset] = set()
    for shard, offset in shards:
        if offset is None or offset in known or not shard.numel():
            continue
        known.add(offset)  # ranks may have the same block
        lows = [max(ours, theirs) for ours, theirs in zip(begin, offset, strict=True)]
        ends = [min(a + n, b + m) for a, n, b, m in zip(begin, into.shape, offset, shard.shape, strict=True)]
        if all(low < end for low, end in zip(lows, ends, strict=True)):
            into[_cut(lows, ends, begin)] = shard[_cut(lows, ends, offset)]
            missing -= math.prod(end - low for low, end in zip(lows, ends, strict=True))
    return missing == 0


def _cut(lows: list[int], ends: list[int], begin: Offset) -> tuple[slice, ...]:
    return tuple(slice(low - at, end - at) for low, end, at in zip(lows, ends, begin, strict=True))


def _tensors(state: Any) -> list[Any]:
    found: list[Any] = []
    state_parts.tensors_mapped(state, found.append)
    return found


def _own_part(tensor: Any) -> torch.Tensor:
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _offset(tensor: Any) -> Offset | None:
    if not hasattr(tensor, "to_local"):
        return None
    return _block(tuple(tensor.shape), tensor.device_mesh, tuple(tensor.placements))


@functools.lru_cache(maxsize=1 << 16)
def _block(shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]) -> Offset:
    """It takes some time, and is needed for each tensor in each snapshot."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    return tuple(compute_local_shape_and_global_offset(torch.Size(shape), mesh, placements)[1])
