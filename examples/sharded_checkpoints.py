"""Sharded checkpoints: no rank holds the whole model, each saves its shards, and the files become one checkpoint.

    python examples/sharded_checkpoints.py

The model and its optimizer are sharded with FSDP and saved with torch.distributed.checkpoint. A checkpoint becomes
visible when the shards of all ranks are safe, so a run never resumes from a part of one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from holdfast import train
from holdfast.train.torch import TorchTrainer, get_device


def make_model() -> nn.Module:
    mesh = init_device_mesh(get_device().type, (train.get_context().get_world_size(),))
    model = nn.Sequential(nn.Linear(16, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up the last checkpoint, if there is one. Returns the epoch to begin with."""
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    rank = train.get_context().get_world_rank()
    with checkpoint.as_directory() as directory:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state: dict[str, Any] = {"model": model_state, "optimizer": optimizer_state, "epoch": 0}
        dcp.load(state, checkpoint_id=directory)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        torch.set_rng_state(torch.load(Path(directory) / f"random-{rank}.pt"))
    return int(state["epoch"]) + 1


def save(directory: str, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    rank = train.get_context().get_world_rank()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "epoch": epoch}, checkpoint_id=directory)
    torch.save(torch.get_rng_state(), Path(directory) / f"random-{rank}.pt")


def train_loop(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    torch.manual_seed(train.get_context().get_world_rank())
    for epoch in range(load(model, optimizer), config["epochs"]):
        for _ in range(config["steps"]):
            x = torch.randn(32, 16)
            loss = nn.functional.mse_loss(model(x), x.sin().sum(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"pid {os.getpid()}: epoch {epoch}, loss {loss.item():.4f}", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            save(directory, model, optimizer, epoch)
            train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=train.Checkpoint.from_directory(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="default: a new one each time")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": args.epochs, "steps": 20},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=args.run_name,
            storage_path=args.storage_path,
            failure_config=train.FailureConfig(max_failures=3),
        ),
    )
    result = trainer.fit()
    print(f"epoch {result.metrics['epoch']}, loss {result.metrics['loss']:.4f}")
    with result.checkpoint.as_directory() as directory:
        for file in sorted(Path(directory).iterdir()):
            print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
