"""What the jobs of the frameworks have in common: ``python X_job.py STORAGE NAME CONFIG`` with CONFIG as JSON.

A job trains a small model, strikes once where CONFIG says so, and prints as JSON a digest of its final model, the
progress that its reports show, and what it noted. ``"restore"`` continues the run with the trainer's ``restore``.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import train


def strike(config: dict[str, Any], at: int) -> None:
    """In the train function, after so many rounds. ``"strikes"`` in the config say after which round a rank, or the
    driver, is killed, once."""
    home = Path(config["home"])
    note(config, "round", at)
    for victim, when in config.get("strikes", {}).items():
        if when != at or train.get_context().get_world_rank() != (0 if victim == "driver" else int(victim)):
            continue
        try:
            (home / f"struck-{victim}").touch(exist_ok=False)
        except FileExistsError:
            continue
        note(config, f"kill {victim}", at)
        os.kill(int((home / "driver").read_text()) if victim == "driver" else os.getpid(), signal.SIGKILL)
        time.sleep(60)  # a worker whose driver was killed is about to be killed


def note(config: dict[str, Any], what: str, at: int) -> None:
    line = json.dumps([what, train.get_context().get_world_rank(), at, time.monotonic()])
    with open(Path(config["home"]) / "notes", "a") as file:
        file.write(f"{line}\n")


def run(
    trainer_class: type[train.DataParallelTrainer], train_fn: Any, digest: Callable[[str], bytes], metric: str
) -> None:
    """``digest`` gets the directory of the last checkpoint; ``metric`` is the one that counts the rounds."""
    storage, name, config = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    config["home"] = str(storage)
    (storage / "driver").write_text(str(os.getpid()))
    if config.get("restore"):
        path = storage / name
        assert trainer_class.can_restore(path)
        trainer = trainer_class.restore(path, train_fn, train_loop_config=config)
    else:
        trainer = trainer_class(
            train_fn,
            train_loop_config=config,
            scaling_config=train.ScalingConfig(num_workers=config.get("workers", 2)),
            run_config=train.RunConfig(
                name=name,
                storage_path=str(storage),
                failure_config=train.FailureConfig(max_failures=config.get("max_failures", 1)),
                verbose=0,
            ),
        )
    result = trainer.fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        found = hashlib.sha256(digest(directory)).hexdigest()
    rounds = result.metrics_dataframe[metric].tolist()
    notes = [json.loads(line) for line in (storage / "notes").read_text().splitlines()]
    print(json.dumps({"digest": found, "rounds": rounds, "metrics": result.metrics, "notes": notes}))
