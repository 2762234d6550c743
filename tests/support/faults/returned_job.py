"""A script whose processes are killed the moment ``report()`` has returned on every rank.

``python returned_job.py STORAGE NAME CONFIG``, with CONFIG as JSON: at step ``at`` rank 0 stops the processes in
``stopped`` ("driver", "agent") before it reports, so that they cannot hear of it, and kills those in ``killed``
("driver", "agent", "workers") once every rank's report has returned. Those in ``killed_next`` are killed when the next
attempt has begun, before it reports. ``then`` has ``at``, ``stopped`` and ``killed`` for a second time. Each rank
writes down every step that it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train

STEPS = 6
RANKS = 2
_PATIENCE_S = 120.0


def train_fn(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    notes = Path(config["notes"])
    step = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            step = json.loads(Path(directory, "rank-0.json").read_text())["step"]
    if config.get("killed_next") and (notes / "disturbed").exists() and not (notes / f"began-{rank}").exists():
        _meet(notes, "began", rank)
        if rank == 0:
            _signal(config, config["killed_next"], signal.SIGKILL)
        signal.pause()
    while step < STEPS:
        step += 1
        with (notes / f"steps-{rank}").open("a") as file:
            file.write(f"{step}\n")
        mark = "disturbed-again" if "then" in config and (notes / "disturbed").exists() else "disturbed"
        fault = config["then"] if mark == "disturbed-again" else config
        disturbs = step == fault["at"] and not (notes / mark).exists()
        if disturbs:
            _meet(notes, f"{mark}-before", rank)
            if rank == 0:
                _signal(config, fault["stopped"], signal.SIGSTOP)
            _meet(notes, f"{mark}-stopped", rank)
        with tempfile.TemporaryDirectory() as directory:
            saves = rank == 0 or config.get("all_save", True)
            if saves:
                Path(directory, f"rank-{rank}.json").write_text(json.dumps({"step": step}))
            saved = train.Checkpoint.from_directory(directory) if saves and step % config.get("every", 1) == 0 else None
            train.report(
                {"step": step, "rank": rank}, saved, checkpoint_dir_name=config.get("named") if saved else None
            )
        if disturbs:
            _meet(notes, f"{mark}-returned", rank)
            if rank == 0:
                (notes / mark).touch()
                _signal(config, fault["killed"], signal.SIGKILL)
            signal.pause()


def _meet(notes: Path, what: str, rank: int) -> None:
    (notes / f"{what}-{rank}").touch()
    deadline = time.monotonic() + _PATIENCE_S
    while not all((notes / f"{what}-{other}").exists() for other in range(RANKS)):
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def _signal(config: dict[str, Any], targets: list[str], number: int) -> None:
    pids = {"driver": config["driver"], "agent": agent_of(config["driver"]), "workers": os.getpid()}
    for target in [target for target in pids if target in targets]:  # this worker, which may not outlive them, last
        if target == "workers":
            _kill_workers(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[target], number)


def agent_of(driver: int) -> int:
    """The last process on the way from this one up to the driver."""
    pid = os.getpid()
    while (parent := _parent(pid)) != driver:
        assert parent > 1, "this worker does not descend from its driver"
        pid = parent
    return pid


def _kill_workers(number: int) -> None:
    zygote = os.getppid()
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            try:
                if _parent(int(path.name)) == zygote:
                    os.kill(int(path.name), number)
            except (OSError, ValueError):
                continue
    os.kill(os.getpid(), number)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def trainer(storage: str, name: str, config: dict[str, Any]) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        train_fn,
        train_loop_config={**config, "driver": os.getpid()},
        scaling_config=train.ScalingConfig(num_workers=RANKS),
        run_config=train.RunConfig(
            name=name, storage_path=storage, failure_config=train.FailureConfig(max_failures=1), verbose=0
        ),
    )


if __name__ == "__main__":
    result = trainer(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).fit()
    print(json.dumps(list(result.metrics_dataframe["step"])))
