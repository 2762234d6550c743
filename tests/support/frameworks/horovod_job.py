"""Horovod with torch, a checkpoint every second step. A batch is the same for any number of workers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

from holdfast import train
from holdfast.train.horovod import HorovodTrainer
from support.frameworks.framework_job import await_change, note, run, strike

STEPS, EVERY = 10, 2


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    hvd.init()
    context = train.get_context()
    assert (hvd.rank(), hvd.size()) == (context.get_world_rank(), context.get_world_size())
    assert (hvd.local_rank(), hvd.local_size()) == (context.get_local_rank(), context.get_local_world_size())
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())  # other weights on each rank, until they are broadcast
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    start, checkpoint = 0, train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt", weights_only=True)
        start = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(5))
    mine = x[hvd.rank() :: hvd.size()]
    for step in range(start + 1, STEPS + 1):
        await_change(config, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(mine), mine.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        strike(config, step)
        with tempfile.TemporaryDirectory() as directory:
            reported = None
            if (step % EVERY == 0 or train.checkpoint_requested()) and hvd.rank() == 0:
                state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, Path(directory) / "state.pt")
                reported = train.Checkpoint.from_directory(directory)
            train.report({"step": step, "loss": hvd.allreduce(loss.detach()).item(), "size": hvd.size()}, reported)


def digest(directory: str) -> bytes:
    state = torch.load(Path(directory) / "state.pt", weights_only=True)
    return b"".join(value.numpy().tobytes() for _, value in sorted(state["model"].items()))


if __name__ == "__main__":
    run(HorovodTrainer, train_fn, digest, "step")
