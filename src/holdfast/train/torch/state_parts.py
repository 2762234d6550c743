"""The parts of a training state: each part's own ``state_dict``, under the names that it has without wrappers.

A part is replicated (the same on all ranks: modules, optimizers, schedules), sharded (no rank has all of it: DTensors
of FSDP2), or per rank (all other objects with a ``state_dict``, such as data loaders). Everything in it can be read by
``torch.load(weights_only=True)``: ``plain`` rejects the rest when it is captured, not when it is needed.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
import xxhash
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

_REPLICATED = (torch.nn.Module, torch.optim.Optimizer, LRScheduler)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype, torch.device)
_MAPPINGS = (dict, OrderedDict, Counter)


def has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def is_replicated(thing: Any) -> bool:
    return isinstance(thing, _REPLICATED)


def bare(thing: Any) -> Any:
    """The module inside of DDP and ``torch.compile``: its state has the names that a plain model's has."""
    while isinstance(thing, torch.nn.Module):
        if isinstance(thing, DistributedDataParallel):
            thing = thing.module
        elif hasattr(thing, "_orig_mod"):
            thing = thing._orig_mod
        else:
            break
    return thing


def sharded_names(parts: Mapping[str, Any]) -> list[str]:
    """Modules with DTensor parameters, and the optimizers of such parameters."""
    tensors = sys.modules.get("torch.distributed.tensor")  # code with such a parameter has imported it
    if tensors is None:
        return []
    return [name for name, part in parts.items() if any(isinstance(p, tensors.DTensor) for p in parameters_of(part))]


def parameters_of(part: Any) -> Iterable[Any]:
    """Of a module or an optimizer."""
    if isinstance(part, torch.nn.Module):
        return list(part.parameters())
    if isinstance(part, torch.optim.Optimizer):
        return (parameter for group in part.param_groups for parameter in group["params"])
    return ()


def collect(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of each part, with the tensors that it trains with, not copies of them."""
    sharded = sharded_names(parts)
    return {
        name: _collect_sharded(name, parts) if name in sharded else plain(bare(part).state_dict(), name)
        for name, part in parts.items()
    }


def _collect_sharded(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    part = parts[name]
    if isinstance(part, torch.nn.Module):
        return dict(get_model_state_dict(part))
    return dict(get_optimizer_state_dict(_model_of(name, parts), part))


def restore(parts: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Load what ``collect`` returned. The states' tensors are copied: they may be changed or unmapped afterwards."""
    sharded = sharded_names(parts)
    for name, state in states.items():
        part = parts[name]
        if name in sharded:
            _restore_sharded(name, parts, state)
        elif isinstance(part, torch.nn.Module):
            bare(part).load_state_dict(state)
        else:
            part.load_state_dict(copied(state))  # an optimizer keeps the tensors that it is given


def _restore_sharded(name: str, parts: Mapping[str, Any], state: dict[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict

    part = parts[name]
    if isinstance(part, torch.nn.Module):
        set_model_state_dict(part, state)
    else:
        set_optimizer_state_dict(_model_of(name, parts), part, copied(state))


def _model_of(name: str, parts: Mapping[str, Any]) -> torch.nn.Module:
    """The module whose parameters this optimizer has: a sharded optimizer's state is by the names of the parameters."""
    wanted = {id(parameter) for parameter in parameters_of(parts[name])}
    for part in parts.values():
        if isinstance(part, torch.nn.Module) and wanted <= {id(parameter) for parameter in part.parameters()}:
            return part
    raise ValueError(
        f"TrainState({name}=…): no module of this state has all parameters of that optimizer; pass the sharded model "
        "too, and one optimizer for each model"
    )


def local(state: Any) -> Any:
    """This rank's own shards of a sharded state."""
    return tensors_mapped(state, lambda tensor: tensor.to_local() if hasattr(tensor, "to_local") else tensor)


def filled(parts: Mapping[str, Any], shards: Mapping[str, Any], fill: Callable[[Any, torch.Tensor], Any]) -> Any:
    """Sharded states, with each of their tensors filled from the one at its place in ``shards``."""
    wanted = {name: part for name, part in parts.items() if name in shards or isinstance(part, torch.nn.Module)}
    present = collect(wanted)
    return {name: _filled(present[name], shard, fill) for name, shard in shards.items()}


def _filled(present: Any, shard: Any, fill: Callable[[Any, torch.Tensor], Any]) -> Any:
    if isinstance(shard, torch.Tensor):
        return fill(present, shard)
    if isinstance(present, dict):
        return {key: _filled(present.get(key), value, fill) for key, value in shard.items()}
    return shard


def buffers(part: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a module's state that are not parameters: batch statistics differ from rank to rank."""
    if not isinstance(part, torch.nn.Module):
        return {}
    parameters = {name for name, _ in bare(part).named_parameters(remove_duplicate=False)}
    return {name: value for name, value in state.items() if name not in parameters}


def tensors_mapped(tree: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
    """The same tree of plain values with every tensor converted, in an order that is the same for equal trees."""
    if isinstance(tree, torch.Tensor):
        return convert(tree)
    if isinstance(tree, Counter):
        return tree.copy()
    if isinstance(tree, dict):
        return _with_metadata(type(tree)((key, tensors_mapped(value, convert)) for key, value in tree.items()), tree)
    if isinstance(tree, list | tuple) and not isinstance(tree, torch.Size):
        return type(tree)(tensors_mapped(value, convert) for value in tree)
    return tree


def _with_metadata(new: Any, old: Any) -> Any:
    """A module's state has the versions of its modules beside its entries."""
    if hasattr(old, "_metadata"):
        new._metadata = old._metadata
    return new


def copied(tree: Any) -> Any:
    return tensors_mapped(tree, lambda tensor: tensor.detach().clone())


def digest_of(tree: Any) -> bytes:
    """Of plain values and tensors: equal trees have the same."""
    found = xxhash.xxh3_128()

    def feed(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                found.update(f"{key!r}:".encode())
                feed(inner)
        elif isinstance(value, list | tuple):
            found.update(f"{type(value).__name__}{len(value)}".encode())
            for inner in value:
                feed(inner)
        else:
            found.update(repr(sorted(value, key=repr) if isinstance(value, set) else value).encode())

    feed(tree)
    return found.digest()


def plain(value: Any, where: str) -> Any:
    """The value as tensors, numbers, text and containers of them; numbers of NumPy become Python's."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Mapping) and kind in _MAPPINGS:
        if kind is Counter:
            return value
        items = ((plain(key, where), plain(inner, f"{where}.{key}")) for key, inner in value.items())
        return _with_metadata(kind(items), value)
    if kind in (list, tuple):
        return kind(plain(inner, f"{where}[{number}]") for number, inner in enumerate(value))
    if kind is set:
        return {plain(inner, where) for inner in value}
    raise TypeError(
        f"TrainState: {where} is a {kind.__module__}.{kind.__qualname__}, which torch.load(weights_only=True) does not "
        "read; keep tensors, numbers, text, and lists and dicts of these in the state"
    )
