"""An FSDP2 training that says what its whole state is at its begin and end; its data does not depend on the world."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from holdfast import train
from holdfast.train.torch import TrainState


def train_fn(config: dict[str, Any]) -> list[Any]:
    """Returns the digests of the state at the begin and at the end, and the steps then."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    context = train.get_context()
    mesh = init_device_mesh("cpu", (context.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.GELU(), torch.nn.Linear(24, 1))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainState(model=model, optimizer=optimizer)
    state.resume()
    begin = [digest(state), state.steps]
    while state.steps < config["steps"]:
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(state.steps))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.snapshot()
        mark = Path(config["marks"], "killed")
        if state.steps == config.get("kill") and context.get_world_rank() == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    state.report({"steps": state.steps})
    return [*begin, digest(state), state.steps]


def digest(state: TrainState) -> str:
    """Of the model and of the optimizer's moments, gathered from all ranks."""
    found = hashlib.sha256()
    parts = state.capture()["parts"]
    for name, tensor in sorted(parts["model"].items()):
        found.update(name.encode() + tensor.full_tensor().numpy().tobytes())
    for name, moments in sorted(parts["optimizer"]["state"].items()):
        found.update(name.encode() + moments["exp_avg"].full_tensor().numpy().tobytes())
    return found.hexdigest()
