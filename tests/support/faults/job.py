"""A training script without a framework, for the tests that kill the driver: starts in a fraction of a second.

Its "weights" are a chain of digests over steps and ranks, so that a step lost, repeated or done on a wrong state shows.
``python job.py STORAGE NAME CONFIG`` with CONFIG as JSON. The last line printed is the final digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast.runs.stored_experiment import load

STEPS = 40


def next_state(state: str, step: int, ranks: int) -> str:
    parts = [hashlib.sha256(f"{state} {step} {rank}".encode()).hexdigest() for rank in range(ranks)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def expected(steps: int = STEPS, ranks: int = 2) -> str:
    state = "start"
    for step in range(steps):
        state = next_state(state, step, ranks)
    return state


def train_fn(config: dict[str, Any]) -> str:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    state, step = "start", 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            shards = [json.loads(Path(directory, f"rank-{r}.json").read_text()) for r in range(ranks)]
        assert all(shard == shards[0] for shard in shards), "a checkpoint of mixed shards"
        state, step = shards[0]["state"], shards[0]["step"]
    while step < config.get("steps", STEPS):
        if step in config.get("raise_at", []) and rank == 1 and not os.path.exists(f"{config['marks']}-{step}"):
            train.collective.barrier()
            Path(f"{config['marks']}-{step}").touch()
            raise ValueError(f"planned failure at {step}")
        if step in config.get("raise_at", []) and not os.path.exists(f"{config['marks']}-{step}"):
            train.collective.barrier()
            signal.pause()
        if step == config.get("wait_at"):
            signal.pause()  # for the driver to be killed
        state = next_state(state, step, ranks)
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"rank-{rank}.json").write_text(json.dumps({"state": state, "step": step}))
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))
        time.sleep(config.get("pause_s", 0.01))
    return state


class Backup(train.UserCallback):
    """Copies the run directory, lease.json too, as a person's script may."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        config = run_context.run_config
        target = Path(config.storage_path, "backup", str(metrics[0]["step"]))
        shutil.copytree(Path(config.storage_path, config.name), target, ignore=shutil.ignore_patterns(".*", "check*"))


def trainer(storage: str, name: str, config: dict[str, Any]) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        train_fn,
        train_loop_config={"marks": os.path.join(storage, "mark"), **config},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name,
            storage_path=storage,
            failure_config=train.FailureConfig(max_failures=config.get("max_failures", 0), backoff_s=0.01),
            checkpoint_config=train.CheckpointConfig(num_to_keep=3),
            callbacks=[Backup()] if config.get("backup") else [],
            verbose=config.get("verbose", 0),
        ),
    )


def main() -> None:
    result = trainer(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).fit()
    steps = [row["step"] for row in load(Path(result.path)).rows]
    assert steps == list(range(1, len(steps) + 1)), "the history has a gap or a repetition"
    print(result.return_value)


if __name__ == "__main__":
    main()
