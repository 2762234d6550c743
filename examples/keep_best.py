"""Retention by score: the two best checkpoints are kept, and the newest, from which a failed run resumes.

python examples/keep_best.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.train.torch import TorchTrainer
from sine import Training


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
            train.report({"epoch": epoch, "loss": loss}, checkpoint=train.Checkpoint.from_directory(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="default: a new one each time")
    parser.add_argument("--epochs", type=int, default=15)
    args = parser.parse_args()

    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": args.epochs},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=args.run_name,
            storage_path=args.storage_path,
            failure_config=train.FailureConfig(max_failures=3),
            checkpoint_config=train.CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
    )
    result = trainer.fit()
    for checkpoint, metrics in result.best_checkpoints:
        print(f"kept epoch {metrics['epoch']}, loss {metrics['loss']:.4f}, in {checkpoint.path}")
    best = result.get_best_checkpoint("loss", "min")
    print(f"the best is {best.path}")


if __name__ == "__main__":
    main()
