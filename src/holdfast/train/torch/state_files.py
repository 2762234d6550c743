"""The files of a training state in a checkpoint. torch alone reads them, and none of them is a pickle of objects.

``state.pt``         what is the same on all ranks, by rank 0: ``{"steps", "world_size", "values", "parts"}``
``rank-00003.pt``    what is of that rank: ``{"rng", "parts"}``
``sharded/``         DTensor states, written by all ranks together with ``torch.distributed.checkpoint``
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from holdfast.train.torch import state_parts

STATE = "state.pt"
SHARDED = "sharded"


def rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def write(directory: Path, captured: Mapping[str, Any], parts: Mapping[str, Any], rank: int, world_size: int) -> None:
    """This rank's files. Where something is sharded, all ranks must write at the same time."""
    states = captured["parts"]
    sharded = state_parts.sharded_names(parts)
    replicated = [name for name in states if name not in sharded and state_parts.is_replicated(parts[name])]
    own = [name for name in states if name not in sharded and name not in replicated]
    if rank == 0:
        whole = {"steps": captured["steps"], "world_size": world_size, "values": captured["values"]}
        torch.save({**whole, "parts": {name: states[name] for name in replicated}}, directory / STATE)
    torch.save({"rng": captured["rng"], "parts": {name: states[name] for name in own}}, directory / rank_file(rank))
    if sharded:
        import torch.distributed.checkpoint as dcp

        dcp.save({name: states[name] for name in sharded}, checkpoint_id=directory / SHARDED)


def read(directory: Path, parts: Mapping[str, Any], rank: int, world_size: int) -> dict[str, Any]:
    """What ``write`` was given, as the rank of another world size needs it."""
    if not (directory / STATE).exists():
        raise ValueError(
            f"TrainState.resume(): the checkpoint in {directory} has no {STATE}, so it was not saved by "
            "TrainState.report(); load it yourself with get_checkpoint(), or use another run name"
        )
    whole = _load(directory / STATE)
    was = whole["world_size"]
    first = _load(directory / rank_file(0))
    own = first if rank == 0 else _load(directory / rank_file(rank)) if rank < was else {"rng": None, **first}
    if was != world_size:
        _check_divisible(directory, first["parts"], was, world_size)
    states = {**whole["parts"], **own["parts"]}
    sharded = [name for name in state_parts.sharded_names(parts) if name not in states]
    if sharded:
        states |= _read_sharded(directory / SHARDED, {name: parts[name] for name in sharded}, parts)
    rng = own["rng"] if rank < was else None
    return {"steps": whole["steps"], "values": whole["values"], "parts": states, "rng": rng, "first_rng": first["rng"]}


def _read_sharded(directory: Path, sharded: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    import torch.distributed.checkpoint as dcp

    collected = state_parts.collect({name: parts[name] for name in parts if name in sharded or _is_module(parts[name])})
    target = {name: collected[name] for name in sharded}
    dcp.load(target, checkpoint_id=directory)
    return target


def _is_module(part: Any) -> bool:
    return isinstance(part, torch.nn.Module)


def _check_divisible(directory: Path, first: Mapping[str, Any], was: int, world_size: int) -> None:
    """State of each rank can be given to another number of ranks only if it was the same on all of them."""
    for rank in range(1, was):
        for name, state in _load(directory / rank_file(rank))["parts"].items():
            if not same(state, first.get(name)):
                raise ValueError(
                    f"TrainState.resume(): {name!r} was saved by {was} workers, each with a state of its own, and now "
                    f"there are {world_size}; use prepare_data_loader()'s loader, which any number of workers can "
                    "resume, or resume with the same number of workers"
                )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        return both and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _load(file: Path) -> Any:
    return torch.load(file, map_location="cpu", weights_only=True)
