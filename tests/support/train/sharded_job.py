"""An FSDP2 training that says what its whole state is at its begin and end; its data does not depend on the world."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from holdfast import train
from holdfast.train.torch import TrainState
from holdfast.worker import session
from support.elastic.elastic_job import PATIENCE_S, note, wait_until


def train_fn(config: dict[str, Any]) -> list[Any]:
    """Returns the digests of the state at the begin and at the end, and the steps then."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    context = train.get_context()
    model, optimizer = sharded(context.get_world_size())
    state = TrainState(model=model, optimizer=optimizer)
    state.resume()
    begin = [digest(state), state.steps]
    while state.steps < config["steps"]:
        train_step(model, optimizer, state.steps)
        state.snapshot()
        mark = Path(config["marks"], "killed")
        if state.steps == config.get("kill") and context.get_world_rank() == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    state.report({"steps": state.steps})
    return [*begin, digest(state), state.steps]


def elastic_train_fn(config: dict[str, Any]) -> int:
    """Trains until it is told that it is enough, with however many workers there are. Notes what each attempt begins
    with, and what torch alone finds in the files that it resumes from."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = train.get_context().get_world_rank(), train.get_context().get_world_size()
    model, optimizer = sharded(world)
    state = TrainState(model=model, optimizer=optimizer)
    state.resume()
    begun, checkpoint = digest(state), train.get_checkpoint()
    if rank == 0:
        note(config, "start", rank, world, state.steps, begun, digest_of_files(checkpoint) if checkpoint else "")
    while not train.collective.broadcast_from_rank_zero(Path(config["enough"]).exists()):
        train_step(model, optimizer, state.steps)
        state.steps += 1
        if rank == 0:
            note(config, "step", rank, world, state.steps)
        state.report({"steps": state.steps}, checkpoint=False)  # where the run asks for one, the attempt may end here
    return state.steps


def moving_train_fn(config: dict[str, Any]) -> list[Any]:
    """Trains up to the step that ``stops`` says for this number of workers, and makes no report: only memory has its
    state. There it waits for the test to take nodes away; where it is to grow, until the driver knows of new nodes, and
    then a rank is killed. Returns the digest of the final state, and the step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    context, own = train.get_context(), session.current()
    rank, world = context.get_world_rank(), context.get_world_size()
    model, optimizer = sharded(world)
    state = TrainState(model=model, optimizer=optimizer)
    state.resume()
    begun = digest(state)
    if rank == 0:
        note(config, "start", rank, world, state.steps, begun)
    stop = config["stops"].get(str(world))
    while state.steps < config["steps"]:
        train_step(model, optimizer, state.steps)
        state.snapshot()
        now = digest(state)
        if rank == 0:
            note(config, "step", rank, world, state.steps)
            note(config, "state", state.steps, now)
        if state.steps == stop:
            assert own.await_kept(state.steps, 60), "on all ranks, with the copies"
            note(config, "waits", rank, world)
            if world == config["grows"]:
                wait_until(lambda: own._notice is not None, "the driver knows of more nodes")
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(PATIENCE_S)
            raise AssertionError("the attempt did not end")
    state.report({"steps": state.steps})
    return [digest(state), state.steps]


def digest_of_files(checkpoint: train.Checkpoint) -> str:
    """Of what torch.distributed.checkpoint alone reads, without TrainState."""
    with checkpoint.as_directory() as directory, tempfile.NamedTemporaryFile() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is one process
        dcp_to_torch_save(Path(directory, "sharded"), file.name)
        parts = torch.load(file.name, weights_only=True)
    found = hashlib.sha256()
    for name, tensor in sorted(parts["model"].items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    for name, moments in sorted(parts["optimizer"]["state"].items()):
        found.update(name.encode() + moments["exp_avg"].numpy().tobytes())
    return found.hexdigest()


def sharded(world: int) -> tuple[torch.nn.Sequential, torch.optim.Optimizer]:
    mesh = init_device_mesh("cpu", (world,))
    model = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.GELU(), torch.nn.Linear(24, 1))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(step))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def digest(state: TrainState) -> str:
    """Of the model and of the optimizer's moments, gathered from all ranks."""
    found = hashlib.sha256()
    parts = state.capture()["parts"]
    for name, tensor in sorted(parts["model"].items()):
        found.update(name.encode() + tensor.full_tensor().numpy().tobytes())
    for name, moments in sorted(parts["optimizer"]["state"].items()):
        found.update(name.encode() + moments["exp_avg"].full_tensor().numpy().tobytes())
    return found.hexdigest()
