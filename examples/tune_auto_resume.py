"""A search that looks for its own experiment: it restores the experiment if there is one, and starts it otherwise.

    python examples/tune_auto_resume.py
    kill -9 <the driver's pid>
    python examples/tune_auto_resume.py

Finished trials do not run again. The others resume from their last checkpoints. The scheduler and the searcher
continue where they were: the experiment's journal is replayed to both.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler


def trainable(config: dict[str, Any]) -> None:
    weight, first = 0.0, 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = json.loads(Path(directory, "state.json").read_text())
        weight, first = state["weight"], state["epoch"] + 1
    for epoch in range(first, config["epochs"] + 1):
        weight -= config["lr"] * 2 * (weight - 3)  # a step down the slope of (weight - 3)²
        time.sleep(0.05)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps({"weight": weight, "epoch": epoch}))
            tune.report(
                {"epoch": epoch, "loss": (weight - 3) ** 2}, checkpoint=tune.Checkpoint.from_directory(directory)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage-path", default=str(Path(tempfile.gettempdir()) / "holdfast-examples"))
    parser.add_argument("--run-name", default="tune-auto-resume")
    parser.add_argument("--trials", type=int, default=8)
    args = parser.parse_args()

    print(f"driver pid {os.getpid()}", flush=True)
    path = str(Path(args.storage_path) / args.run_name)
    if tune.Tuner.can_restore(path):
        print(f"restoring {path}", flush=True)
        tuner = tune.Tuner.restore(path, trainable=trainable, resume_errored=True)
    else:
        print(f"starting {path}", flush=True)
        tuner = tune.Tuner(
            trainable,
            param_space={"lr": tune.loguniform(1e-3, 1.0), "epochs": 9},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=args.trials,
                scheduler=ASHAScheduler(max_t=9, grace_period=3, reduction_factor=3),
            ),
            run_config=tune.RunConfig(
                name=args.run_name,
                storage_path=args.storage_path,
                failure_config=tune.FailureConfig(max_failures=3),
            ),
        )
    results = tuner.fit()
    best = results.get_best_result("loss", "min")
    print(f"{len(results)} trials, best lr {best.config['lr']:.4f}, loss {best.metrics['loss']:.6f}, in {best.path}")


if __name__ == "__main__":
    main()
