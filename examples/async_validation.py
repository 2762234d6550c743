"""Asynchronous validation: another process validates each checkpoint while the workers continue training.

    python examples/async_validation.py

The metrics that the validation function returns are added to the checkpoint's, and may decide which ones are kept.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast import train
from holdfast.train.torch import TorchTrainer
from sine import Training, make_data, make_network


def validate(checkpoint: train.Checkpoint, size: int) -> dict[str, float]:
    network = make_network()
    with checkpoint.as_directory() as directory:
        network.load_state_dict(torch.load(Path(directory) / "state.pt")["model"])
    network.eval()
    x, y = make_data(seed=1, size=size).tensors
    with torch.no_grad():
        return {"validation_loss": nn.functional.mse_loss(network(x), y).item()}


def train_loop(config: dict[str, Any]) -> None:
    training = Training()
    first_epoch = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            first_epoch = training.load(directory) + 1
    for epoch in range(first_epoch, config["epochs"]):
        loss = training.run_epoch(epoch)
        with tempfile.TemporaryDirectory() as directory:
            training.save(directory, epoch)
            train.report(
                {"epoch": epoch, "loss": loss},
                checkpoint=train.Checkpoint.from_directory(directory),
                validation=train.ValidationTaskConfig(fn_kwargs={"size": 256 if epoch < 5 else 2048}),
            )
    if training.rank == 0:
        # Waits for the validations that are still under way.
        for reported in train.get_all_reported_checkpoints():
            print(f"epoch {reported.metrics['epoch']}: {reported.status.name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="default: a new one each time")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": args.epochs},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=args.run_name,
            storage_path=args.storage_path,
            checkpoint_config=train.CheckpointConfig(
                num_to_keep=3, checkpoint_score_attribute="validation_loss", checkpoint_score_order="min"
            ),
        ),
        validation_config=train.ValidationConfig(fn=validate),
    )
    result = trainer.fit()
    for checkpoint, metrics in result.best_checkpoints:
        print(f"kept epoch {metrics['epoch']}: validation loss {metrics['validation_loss']:.4f}, in {checkpoint.path}")


if __name__ == "__main__":
    main()
