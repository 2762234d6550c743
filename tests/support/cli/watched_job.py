"""A training script that prints, fails and waits where it is told to. ``python watched_job.py STORAGE NAME CONFIG``.

"raise_at": a step at which rank 1 fails once. "wait_at": a step at which all ranks wait for the file MARKS/go. "marks":
the directory for such files, if STORAGE is none.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train

PATIENCE_S = 120.0


def train_fn(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    marks, step = Path(config["marks"]), 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            step = int(Path(directory, "step").read_text())
    print(f"rank {rank} begins at {step}", flush=True)
    while step < config["steps"]:
        mark = marks / f"raised-{step}"
        if step == config.get("raise_at") and not mark.exists():
            train.collective.barrier()
            if rank == 1:
                mark.touch()
                raise ValueError(f"planned failure at {step}")
            time.sleep(PATIENCE_S)
        if step == config.get("wait_at"):
            wait_for(marks / "go")
        step += 1
        print(f"step {step}", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            Path(directory, f"rank-{rank}").write_bytes(b"x" * 2000)
            train.report({"step": step, "loss": 1 / step}, checkpoint=train.Checkpoint.from_directory(directory))
        time.sleep(config.get("pause_s", 0))
    print("last words", end="", flush=True)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.01)


def main() -> None:
    storage, name, config = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    train.DataParallelTrainer(
        train_fn,
        train_loop_config={"marks": storage, **config},
        scaling_config=train.ScalingConfig(num_workers=config.get("workers", 2)),
        run_config=train.RunConfig(
            name=name,
            storage_path=storage,
            failure_config=train.FailureConfig(max_failures=config.get("max_failures", 0), backoff_s=0.01),
            checkpoint_config=train.CheckpointConfig(num_to_keep=config.get("keep", 4)),
            verbose=0,
        ),
    ).fit()


if __name__ == "__main__":
    main()
