"""Runs with something to look at: a crash, an exception, checkpoints, logs, and a search."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import train, tune

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"


def train_fn(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    checkpoint, start = train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            start = json.loads(Path(directory, f"rank-{rank}.json").read_text())
    print(f"pid {os.getpid()}", flush=True)
    for epoch in range(start, config["epochs"]):
        print(f"epoch {epoch} {config.get('says', '')}", flush=True)
        train.collective.barrier()  # the ranks fail in the order of their epochs
        mark = Path(config["marks"], f"{config['name']}-{epoch}")
        if epoch in config.get("kills", ()) and rank == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if epoch in config.get("raises", ()) and rank == 0 and not mark.exists():
            mark.touch()
            raise RuntimeError(config.get("says") or f"planned failure at {epoch}")
        if epoch in config.get("hangs", ()) and rank == 1 and not mark.exists():
            mark.touch()
            time.sleep(600)
        metrics = {"epoch": epoch, "loss": math.exp(-epoch / 5), config.get("metric", "accuracy"): epoch / 10}
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank-{rank}.json").write_text(json.dumps(epoch + 1))
            saves = train.Checkpoint.from_directory(directory) if epoch % 2 else None
            train.report(metrics, checkpoint=saves)
        time.sleep(config.get("pause_s", 0.0))


def train_run(storage: Path | str, name: str, **config: Any) -> None:
    marks = tempfile.mkdtemp()
    settings = {"epochs": 8, "marks": marks, "name": "shown", **config}
    try:
        train.DataParallelTrainer(
            train_fn,
            train_loop_config=settings,
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                name=name,
                storage_path=str(storage),
                verbose=config.get("verbose", 0),
                failure_config=train.FailureConfig(
                    max_failures=config.get("retries", 3), backoff_s=0.01, hang_timeout_s=config.get("hang_timeout_s")
                ),
            ),
        ).fit()
    except train.TrainingFailedError:
        assert not config.get("retries", 3)
    finally:
        for path in Path(marks).iterdir():
            path.unlink()
        os.rmdir(marks)


def objective(config: dict[str, Any]) -> None:
    for step in range(4):
        if config["width"] == 3 and step == 2:
            raise ValueError("planned failure of a trial")
        tune.report({"loss": (config["lr"] - 0.3) ** 2 + config["width"] / 100 + 1 / (step + 1)})


def search(storage: Path | str, name: str, verbose: int = 0) -> None:
    tune.Tuner(
        objective,
        param_space={"lr": tune.grid_search([0.1, 0.3, 0.9]), "width": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name=name, storage_path=str(storage), verbose=verbose),
    ).fit()


if __name__ == "__main__":
    train_run(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
