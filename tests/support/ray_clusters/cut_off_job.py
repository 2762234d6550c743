"""``python cut_off_job.py HOME``: a run on a Ray cluster whose two ranks do not wait for each other.

So a rank that is cut off trains on until somebody ends it. Each note has the time, of the clock that all processes of a
machine share. It trains until it has made as many steps as the file ``enough`` says; what came of it is in
``found.json`` then.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast.train as train
from support.elastic.elastic_job import expected, next_state, node_id

PAUSE_S = 0.1


def train_fn(config: dict[str, Any]) -> str:
    home, rank = Path(config["home"]), train.get_context().get_world_rank()
    state, step = "start", 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state, step = json.loads(Path(directory, "state.json").read_text())
    notes = home / "steps" / f"{rank} {node_id()} {time.monotonic_ns()} {os.getpid()}"
    while step < enough(home):
        state, step = next_state(state, step), step + 1
        with notes.open("a") as file:
            file.write(f"{time.monotonic()}\n")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps([state, step]))
            saved = train.Checkpoint.from_directory(directory) if rank == 0 else None
            train.report({"step": step}, checkpoint=saved)
        time.sleep(PAUSE_S)
    return state


def enough(home: Path) -> int:
    try:
        return int((home / "enough").read_text())
    except FileNotFoundError:
        return sys.maxsize


@dataclass(frozen=True)
class Worker:
    """One life of a rank: when it made its steps."""

    rank: int
    node: str
    pid: int  # as its host knows it
    steps: list[float]


def workers(home: Path) -> list[Worker]:
    """In the order in which they began, of those that have made a step."""
    found = []
    for path in sorted((home / "steps").iterdir(), key=lambda path: int(path.name.split()[2])):
        rank, node, _, pid = path.name.split()
        lines = path.read_text().split("\n")[:-1]
        found.append(Worker(int(rank), node, int(pid), [float(line) for line in lines]))
    return [worker for worker in found if worker.steps]


def say_enough(home: Path, steps: int) -> None:
    draft = home / "enough.draft"
    draft.write_text(str(steps))
    os.replace(draft, home / "enough")


def main() -> None:
    home = Path(sys.argv[1])
    result = train.DataParallelTrainer(
        train_fn,
        train_loop_config={"home": str(home)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(home),
            engine="ray",
            failure_config=train.FailureConfig(max_failures=2, backoff_s=0.01),
            checkpoint_config=train.CheckpointConfig(num_to_keep=3),
            verbose=0,
        ),
    ).fit()
    history = [int(step) for step in result.metrics_dataframe["step"]]
    found = {"history": history, "right": result.return_value == expected(len(history))}
    (home / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
