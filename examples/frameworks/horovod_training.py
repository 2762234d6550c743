"""Horovod over two workers. The guide docs/horovod.md explains it."""

import os
import tempfile

import horovod.torch as hvd
import torch

from holdfast import train
from holdfast.train.horovod import HorovodTrainer


def train_fn():
    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    start, checkpoint = 0, train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "state.pt"))
        start = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(start + 1, 21):
        batch = torch.randn(64, 4, generator=torch.Generator().manual_seed(step))
        mine = batch[hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(mine), mine.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as directory:
            reported = None
            if hvd.rank() == 0:
                state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, os.path.join(directory, "state.pt"))
                reported = train.Checkpoint.from_directory(directory)
            train.report({"step": step, "loss": hvd.allreduce(loss.detach()).item()}, reported)


if __name__ == "__main__":
    result = HorovodTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="horovod", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    print(result.metrics)
