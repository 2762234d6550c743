"""A script that looks for its own run: it restores the run if there is one, and starts it otherwise.

    python examples/auto_resume.py
    kill -9 <the driver's pid>
    python examples/auto_resume.py

`restore` reads the configurations from the run's directory, unless you pass them. Always pass the train function,
because code is not stored.
"""

from __future__ import annotations

import argparse
import os
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
        print(f"epoch {epoch}, loss {loss:.4f}", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            training.save(directory, epoch)
            train.report({"epoch": epoch, "loss": loss}, checkpoint=train.Checkpoint.from_directory(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", default="auto-resume")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()

    print(f"driver pid {os.getpid()}", flush=True)
    path = str(Path(args.storage_path) / args.run_name)
    if TorchTrainer.can_restore(path):
        print(f"restoring {path}")
        trainer = TorchTrainer.restore(path, train_loop_per_worker=train_loop)
    else:
        print(f"starting {path}")
        trainer = TorchTrainer(
            train_loop,
            train_loop_config={"epochs": args.epochs},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name=args.run_name, storage_path=args.storage_path),
        )
    result = trainer.fit()
    print(f"epoch {result.metrics['epoch']}, loss {result.metrics['loss']:.4f}, in {result.path}")


if __name__ == "__main__":
    main()
