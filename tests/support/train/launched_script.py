"""A script of local mode that torchrun starts several times: each rank sees its part of the data."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model


def train_fn(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank = context.get_world_rank()
    model = prepare_model(torch.nn.Linear(1, 1))
    loader = prepare_data_loader(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2))
    seen = [int(value) for (batch,) in loader for value in batch]
    total = torch.tensor([float(len(seen))])
    dist.all_reduce(total)
    train.collective.barrier()
    said = train.collective.broadcast_from_rank_zero(f"rank {rank}")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "seen").write_text(json.dumps(seen))
        checkpoint = train.Checkpoint(directory) if rank == 0 else None
        train.report({"total": total.item()}, checkpoint)
    note = {
        "rank": rank,
        "world": context.get_world_size(),
        "name": context.get_experiment_name(),
        "seen": seen,
        "said": said,
        "model": type(model).__name__,
    }
    Path(config["notes"], str(rank)).write_text(json.dumps(note))


if __name__ == "__main__":
    result = TorchTrainer(
        train_fn,
        train_loop_config={"notes": sys.argv[2]},
        scaling_config=train.ScalingConfig(num_workers=0),
        run_config=train.RunConfig(storage_path=sys.argv[1], verbose=0),
    ).fit()
    assert result.metrics == {"total": 8.0}, result.metrics
