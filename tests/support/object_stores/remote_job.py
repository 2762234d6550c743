"""A training job on remote storage whose pace, size and faults its config sets; a chain of digests is its state.

``python remote_job.py STORAGE NAME CONFIG``, CONFIG as JSON; the last line printed is the state in the last checkpoint.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train

ENDS_WITHIN_S = 120.0


def next_state(state: str, step: int) -> str:
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def expected(steps: int) -> str:
    state = "start"
    for step in range(steps):
        state = next_state(state, step)
    return state


def save(directory: Path, rank: int, step: int, state: str, size: int) -> None:
    (directory / f"rank-{rank}.bin").write_bytes(hashlib.shake_128(f"{state} {rank}".encode()).digest(size))
    if rank == 0:
        (directory / "state.json").write_text(json.dumps({"state": state, "step": step}))


def load(directory: Path) -> tuple[str, int]:
    saved = json.loads((directory / "state.json").read_text())
    for path in directory.glob("rank-*.bin"):
        data = path.read_bytes()
        rank = path.stem.partition("-")[2]
        assert data == hashlib.shake_128(f"{saved['state']} {rank}".encode()).digest(len(data)), f"{path} is torn"
    assert saved["state"] == expected(saved["step"]), "the state is wrong"
    return saved["state"], saved["step"]


def train_fn(config: dict[str, Any]) -> str:
    rank, state, step = train.get_context().get_world_rank(), "start", 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state, step = load(Path(directory))
    note(config, f"start {rank} {step}")
    while step < config["steps"]:
        strike(config, rank, step)
        wait_for(config.get("holds", {}).get(str(step)), within_s=100)
        state = next_state(state, step)
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            save(Path(directory), rank, step, state, config.get("size", 1000))
            before = time.monotonic()
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory), **options(config))
            note(config, f"report {rank} {step} {time.monotonic() - before}")
        time.sleep(config.get("pace_s", 0.0))
    return state


def options(config: dict[str, Any]) -> dict[str, Any]:
    return {"checkpoint_upload_mode": train.CheckpointUploadMode[config["mode"]]} if "mode" in config else {}


def strike(config: dict[str, Any], rank: int, step: int) -> None:
    """Each blow once in the life of a run, after everybody has come that far."""
    for blow in config.get("blows", []):
        mark = Path(config["marks"], f"{blow['what']}-{blow['step']}")
        if step != blow["step"] or mark.exists():
            continue
        if blow.get("durable"):
            train.get_all_reported_checkpoints()
        train.collective.barrier()
        wait_for(blow.get("await"))
        if rank == blow.get("rank", 1):
            mark.touch()
            target = {"driver": config["driver"], "worker": os.getpid()}[blow["what"]]
            os.kill(target, signal.Signals[blow.get("signal", "SIGKILL")])
        if blow.get("signal", "SIGKILL") == "SIGKILL":
            signal.pause()


def wait_for(pattern: str | None, within_s: float = 30) -> None:
    """Until a file of such a name is there."""
    deadline = time.monotonic() + within_s
    while pattern and not glob.glob(pattern, include_hidden=True, recursive=True) and time.monotonic() < deadline:
        time.sleep(0.01)


def note(config: dict[str, Any], line: str) -> None:
    """For all drivers of the run, or for each its own."""
    marks = Path(config["marks"]) if "marks" in config else Path(config["marks_by_driver"], str(config["driver"]))
    marks.mkdir(exist_ok=True)
    with open(marks / "notes", "a") as file:
        file.write(line + "\n")


def trainer(storage: str, name: str, config: dict[str, Any], **run_options: Any) -> train.DataParallelTrainer:
    run_options = {"failure_config": train.FailureConfig(max_failures=config.get("max_failures", 0)), **run_options}
    keep = train.CheckpointConfig(num_to_keep=config.get("keep"))
    return train.DataParallelTrainer(
        train_fn,
        train_loop_config={"driver": os.getpid(), **config},
        scaling_config=train.ScalingConfig(num_workers=config.get("workers", 2)),
        run_config=train.RunConfig(
            name=name, storage_path=storage, checkpoint_config=keep, verbose=config.get("verbose", 0), **run_options
        ),
    )


def run_job(storage: str, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """The run named "run", in a process of its own."""
    command = [sys.executable, __file__, storage, "run", json.dumps(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S)


def main() -> None:
    result = trainer(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        print(load(Path(directory))[0])


if __name__ == "__main__":
    main()
