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
from holdfast.tune.schedulers import HyperBandScheduler, PopulationBasedTraining

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


def slow_objective(config: dict[str, Any]) -> None:
    for step in range(10_000):
        tune.report({"loss": (config["lr"] - 0.3) ** 2 + 1 / (step + 1)})
        if config["lr"] == 0.1 and step == 2:
            return
        time.sleep(config["pause_s"])


def living_search(storage: Path | str, name: str, pause_s: float) -> None:
    """One trial ends early, and the others run until they are stopped."""
    tune.Tuner(
        tune.with_resources(slow_objective, {"cpu": 0.1}),
        param_space={"lr": tune.grid_search([0.1, 0.3, 0.9]), "pause_s": pause_s},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name=name, storage_path=str(storage), verbose=0),
    ).fit()


def growing(config: dict[str, Any]) -> None:
    """The higher ``lr``, the better, at every step; with a checkpoint at each."""
    checkpoint, state = tune.get_checkpoint(), {"step": 0, "score": 0.0}
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = json.loads(Path(directory, "state.json").read_text())
    while state["step"] < config.get("steps", 9):
        state = {"step": state["step"] + 1, "score": state["score"] + config["lr"]}
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps(state))
            tune.report({"score": state["score"]}, checkpoint=tune.Checkpoint.from_directory(directory))


def scheduled_search(storage: Path | str, name: str, scheduler: Any, **constants: Any) -> None:
    """All trials share a CPU, so that a scheduler has them all to compare."""
    tune.Tuner(
        tune.with_resources(growing, {"cpu": 0.1}),
        param_space={"lr": tune.grid_search([0.1, 0.2, 0.4, 0.8, 1.6, 3.2]), **constants},
        tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=scheduler),
        run_config=tune.RunConfig(name=name, storage_path=str(storage), verbose=0),
    ).fit()


def population(storage: Path | str, name: str) -> None:
    mutations = {"lr": [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]}
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=3, hyperparam_mutations=mutations, synch=True, seed=1
    )
    scheduled_search(storage, name, scheduler)


def halving(storage: Path | str, name: str) -> None:
    """Trials wait for each other, and the scheduler stops some of those that wait."""
    scheduled_search(storage, name, HyperBandScheduler(time_attr="training_iteration", max_t=9, reduction_factor=3))


if __name__ == "__main__":
    given = json.loads(sys.argv[3])
    (living_search if given.pop("is_search", False) else train_run)(sys.argv[1], sys.argv[2], **given)
