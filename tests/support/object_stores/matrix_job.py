"""A small deterministic training job for the fault matrix: no framework, two workers, ten checkpoints of several files.

Its "weights" are a chain of digests over steps and ranks, and the bytes of every file follow from them, so that a step
lost, repeated or done on a wrong state shows, and a torn or mixed checkpoint does too. On the way a worker is killed,
and the driver: ``python matrix_job.py STORAGE NAME MARKS`` ends with SIGKILL the first time, and continues the second.
The last line printed is the state in the last checkpoint, read back from storage. MARKS is a local directory that tells
which blow has fallen already.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdfast.train as train

STEPS = 10
RANKS = 2
KEPT = 3
WORKER_DIES_AT = 3
DRIVER_DIES_AT = 7
FILES = {"weights.bin": 60_000, "moments/first.bin": 40_000, "moments/second.bin": 20_000}


def next_state(state: str, step: int) -> str:
    parts = [hashlib.sha256(f"{state} {step} {rank}".encode()).hexdigest() for rank in range(RANKS)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def expected(steps: int = STEPS) -> str:
    state = "start"
    for step in range(steps):
        state = next_state(state, step)
    return state


def content(state: str, rank: int, name: str) -> bytes:
    return hashlib.shake_256(f"{state} {rank} {name}".encode()).digest(FILES[name])


def save(directory: Path, state: str, step: int, rank: int) -> None:
    for name in FILES:
        path = directory / f"rank-{rank}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(state, rank, name))
    if rank == 0:
        (directory / "state.json").write_text(json.dumps({"state": state, "step": step}))


def load(directory: Path) -> tuple[str, int]:
    saved = json.loads((directory / "state.json").read_text())
    state, step = saved["state"], saved["step"]
    assert state == expected(step), f"the state after step {step} is wrong"
    for rank in range(RANKS):
        for name in FILES:
            assert (directory / f"rank-{rank}" / name).read_bytes() == content(state, rank, name), f"torn at {step}"
    return state, step


def train_fn(config: dict[str, Any]) -> str:
    rank, state, step = train.get_context().get_world_rank(), "start", 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state, step = load(Path(directory))
    while step < STEPS:
        for at, victim, blow in [(WORKER_DIES_AT, 1, os.getpid()), (DRIVER_DIES_AT, 0, config["driver"])]:
            if step == at:
                train.get_all_reported_checkpoints()  # what comes after the blow has something to resume from
                train.collective.barrier()
                strike(Path(config["marks"], f"step-{at}"), rank == victim, blow)
        state = next_state(state, step)
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            save(Path(directory), state, step, rank)
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))
    return state


def strike(mark: Path, mine: bool, pid: int) -> None:
    """Once in the life of a run."""
    if mark.exists():
        return
    if mine:
        mark.touch()
        os.kill(pid, signal.SIGKILL)
    signal.pause()


def trainer(storage: str, name: str, marks: str) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        train_fn,
        train_loop_config={"marks": marks, "driver": os.getpid()},
        scaling_config=train.ScalingConfig(num_workers=RANKS),
        run_config=train.RunConfig(
            name=name,
            storage_path=storage,
            failure_config=train.FailureConfig(max_failures=1, backoff_s=0.01),
            checkpoint_config=train.CheckpointConfig(KEPT, checkpoint_score_attribute="step"),  # none is superseded
            verbose=0,
        ),
    )


def main() -> None:
    result = trainer(*sys.argv[1:]).fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        state, step = load(Path(directory))
    assert (state, step) == (result.return_value, STEPS)
    print(state)


if __name__ == "__main__":
    main()
