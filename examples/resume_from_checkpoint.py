"""A new run that starts from another run's checkpoint: pretrain on one curve, fine-tune on the next.

    python examples/resume_from_checkpoint.py

This is not the same as resuming a run: the second run has its own directory, history and epochs. Its train function
gets the other run's checkpoint at first, and its own ones after a failure, so each checkpoint says which task saved
it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from holdfast import train
from holdfast.train.torch import TorchTrainer
from sine import Training


def train_loop(config: dict[str, Any]) -> None:
    training = Training(phase=config["phase"])
    first_epoch = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            epoch = training.load(directory)
            saved_by = json.loads((Path(directory) / "task.json").read_text())
        if saved_by == config["task"]:
            first_epoch = epoch + 1
    for epoch in range(first_epoch, config["epochs"]):
        loss = training.run_epoch(epoch)
        with tempfile.TemporaryDirectory() as directory:
            training.save(directory, epoch)
            (Path(directory) / "task.json").write_text(json.dumps(config["task"]))
            train.report({"epoch": epoch, "loss": loss}, checkpoint=train.Checkpoint.from_directory(directory))


def fit(
    name: str | None, task: str, phase: float, epochs: int, storage_path: str, start: train.Checkpoint | None
) -> train.Result:
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"task": task, "phase": phase, "epochs": epochs},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name, storage_path=storage_path, failure_config=train.FailureConfig(max_failures=3)
        ),
        resume_from_checkpoint=start,
    )
    return trainer.fit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", help="of all three, with -1, -2 and -3 behind it; default: new ones each time")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()

    names = [args.run_name and f"{args.run_name}-{number}" for number in (1, 2, 3)]
    pretrained = fit(names[0], "pretrain", 0.0, args.epochs, args.storage_path, start=None)
    tuned = fit(names[1], "tune", math.pi / 8, args.epochs // 4, args.storage_path, start=pretrained.checkpoint)
    scratch = fit(names[2], "tune", math.pi / 8, args.epochs // 4, args.storage_path, start=None)
    print(f"pretrained: epoch {pretrained.metrics['epoch']}, loss {pretrained.metrics['loss']:.4f}")
    print(f"fine-tuned: epoch {tuned.metrics['epoch']}, loss {tuned.metrics['loss']:.4f}, in {tuned.path}")
    print(f"from scratch: epoch {scratch.metrics['epoch']}, loss {scratch.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
