"""DDP on a ``LiveGroup``, with buckets that depend only on the model.

DDP rebuilds its buckets after the first step, in the order in which gradients arrived, and tells the other ranks. A
rank that joins later would rebuild them at another time than its peers, and add up other elements. So the layout is
fixed before the first step: gradients are expected in the reverse order of the parameters, as DDP itself expects them
at first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from holdfast.train.torch.live_group import LiveGroup


def problem_of(model: Any) -> str | None:
    """Why a model cannot continue with a replaced rank; None if it can."""
    if not isinstance(model, torch.nn.Module):
        return None
    for module in model.modules():
        if isinstance(module, DistributedDataParallel) and module.static_graph:
            return "DistributedDataParallel(static_graph=True)"
        if type(module).__name__ in ("FullyShardedDataParallel", "FSDPModule"):
            return "a sharded model, of which no rank has a copy"
        if any(parameter.device.type != "cpu" for parameter in module.parameters(recurse=False)):
            return "a model on a GPU"
    return None


def adopt(model: Any, group: LiveGroup) -> None:
    """Have every DDP in the model use the group, and settle its buckets."""
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        if isinstance(module, DistributedDataParallel):
            if module.process_group is not group:
                _move(module, group)
            with group.alone():
                _settle(module)


def _move(ddp: DistributedDataParallel, group: LiveGroup) -> None:
    """As DDP itself does when it is unpickled: the reducer is what knows the group."""
    ddp.process_group = group
    parameters, sparse = ddp._build_params_for_reducer()
    names = ddp._build_debug_param_to_name_mapping(parameters)
    ddp._ddp_init_helper(parameters, sparse, names, ddp.static_graph)


def _settle(ddp: DistributedDataParallel) -> None:
    """A backward pass of zeros, one parameter after the other: then DDP knows their order."""
    if ddp.find_unused_parameters:
        return  # then it keeps the layout that it began with
    parameters, _ = ddp._build_params_for_reducer()
    before = [parameter.grad for parameter in parameters]
    ddp.reducer.prepare_for_forward()
    ddp.reducer.prepare_for_backward([])
    for parameter in reversed(parameters):
        torch.autograd.backward([parameter], [torch.zeros_like(parameter)])
    ddp.reducer._rebuild_buckets()
    for parameter, gradient in zip(parameters, before, strict=True):
        parameter.grad = gradient
