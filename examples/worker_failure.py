"""Killed workers: the run resumes from the last reported checkpoint.

    python examples/worker_failure.py
    kill -9 <one of the pids that it prints>     (in another terminal, up to three times)

A checkpoint holds everything that the next step depends on: weights, optimizer, epoch, and the random state of each
rank. So a run with kills ends with the same weights, bit for bit, as one without.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def make_data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2048, 1, generator=generator) * 6 - 3
    return TensorDataset(x, torch.sin(2 * x) + 0.1 * torch.randn(x.shape, generator=generator))


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


def train_loop(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    rank = train.get_context().get_world_rank()
    torch.manual_seed(rank)
    network = make_network()
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=config["lr"])
    loader = prepare_data_loader(DataLoader(make_data(), batch_size=32, shuffle=True))
    first_epoch = 0

    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt")
            torch.set_rng_state(torch.load(Path(directory) / f"random-{rank}.pt"))
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"] + 1

    for epoch in range(first_epoch, config["epochs"]):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"pid {os.getpid()}: epoch {epoch}, loss {loss.item():.4f}", flush=True)

        with tempfile.TemporaryDirectory() as directory:
            torch.save(torch.get_rng_state(), Path(directory) / f"random-{rank}.pt")
            if rank == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, Path(directory) / "state.pt")
            # The files of all ranks are merged into one checkpoint.
            train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=train.Checkpoint.from_directory(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="default: a new one each time")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()

    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"lr": 0.003, "epochs": args.epochs},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=args.run_name,
            storage_path=args.storage_path,
            failure_config=train.FailureConfig(max_failures=3),
        ),
    )
    result = trainer.fit()
    print(f"epoch {result.metrics['epoch']}, loss {result.metrics['loss']:.4f}, in {result.path}")


if __name__ == "__main__":
    main()
