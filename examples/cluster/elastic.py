"""Elastic training on a cluster: as many workers as fit, between a minimum and a maximum.

    cd examples/cluster
    ray job submit --working-dir . -- python elastic.py --storage-path s3://bucket/runs --run-name curve --use-gpu

The clusters of kuberay.yaml and launcher.yaml have 1 to 8 nodes for it. The same command resumes a run that was
interrupted. A step is the same for any number of workers: each takes its part of one batch.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast import train
from holdfast.train import FailureConfig, RunConfig
from holdfast.train.torch import ScalingConfig, TorchTrainer, get_device, prepare_model

BATCH = 64  # of all workers together, however many there are


def make_batch(step: int, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(BATCH, 1, generator=torch.Generator().manual_seed(step)) * 6 - 3
    return x[rank::world_size], torch.sin(2 * x)[rank::world_size]


def train_loop(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    context, device = train.get_context(), get_device()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Linear(64, 1)).to(device)
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
    step = 0

    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt", map_location=device)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]

    while step < config["steps"]:
        x, y = (part.to(device) for part in make_batch(step, rank, world_size))
        # Parts may differ in size; what the workers average is then still the mean over the whole batch.
        loss = nn.functional.mse_loss(model(x), y, reduction="sum") * world_size / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1

        metrics = {"step": step, "workers": world_size, "loss": loss.item()}
        due = step % config["checkpoint_every"] == 0 or step == config["steps"] or train.checkpoint_requested()
        with tempfile.TemporaryDirectory() as directory:
            checkpoint = None
            if due and rank == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, Path(directory) / "state.pt")
                checkpoint = train.Checkpoint.from_directory(directory)
            train.report(metrics, checkpoint=checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", required=True, help="a bucket, or a directory that all nodes share")
    parser.add_argument("--run-name", required=True)
    parser.add_argument("--workers", type=int, nargs=2, metavar=("MIN", "MAX"), default=(1, 8))
    parser.add_argument("--use-gpu", action="store_true", help="one for each worker")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--checkpoint-every", type=int, default=20)
    args = parser.parse_args()

    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"steps": args.steps, "checkpoint_every": args.checkpoint_every},
        scaling_config=ScalingConfig(
            num_workers=tuple(args.workers), use_gpu=args.use_gpu, elastic_resize_monitor_interval_s=1.0
        ),
        run_config=RunConfig(
            name=args.run_name,
            storage_path=args.storage_path,
            engine="ray",  # a submitted job does not see the HOLDFAST_ENGINE of the shell that submits it
            failure_config=FailureConfig(max_failures=3),
        ),
    )
    result = trainer.fit()
    history = result.metrics_dataframe
    assert history["step"].tolist() == list(range(1, args.steps + 1)), "a step is missing, or there twice"
    print(f"{len(history)} steps by {sorted(set(history['workers'].tolist()))} workers, in {result.path}")


if __name__ == "__main__":
    main()
