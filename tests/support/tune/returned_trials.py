"""An experiment whose driver is killed the moment ``report()`` has returned in both of its trials.

``python returned_trials.py STORAGE NOTES`` runs, or resumes, it. The driver is stopped before the reports of epoch
``AT``, so that it cannot hear of them. With "later" behind that the trials are killed there, and the driver when
their next attempts have begun; with "agent" the agent is stopped and killed instead. Each trial writes down every epoch
that it does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import tune
from support.faults.returned_job import agent_of

EPOCHS = 5
AT = 3
_PATIENCE_S = 120.0


def count(config: dict[str, Any]) -> None:
    notes, number = Path(config["notes"]), config["number"]
    epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            epoch = json.loads(Path(directory, "state.json").read_text())
    if "later" in config["how"] and (notes / "disturbed").exists() and not (notes / f"began-{number}").exists():
        _meet(notes, "began", number)
        if number == 0:
            os.kill(config["driver"], signal.SIGKILL)
        signal.pause()
    while epoch < EPOCHS:
        epoch += 1
        with (notes / f"epochs-{number}").open("a") as file:
            file.write(f"{epoch}\n")
        disturbs = epoch == AT and not (notes / "disturbed").exists()
        if disturbs:
            _meet(notes, "before", number)
            if number == 0 and "later" not in config["how"]:
                os.kill(_target(config), signal.SIGSTOP)
            _meet(notes, "stopped", number)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps(epoch))
            tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(directory))
        if disturbs:
            _meet(notes, "returned", number)
            (notes / "disturbed").touch()
            if "later" in config["how"]:
                os.kill(os.getpid(), signal.SIGKILL)
            if number == 0:
                os.kill(_target(config), signal.SIGKILL)
            signal.pause()


def _target(config: dict[str, Any]) -> int:
    return agent_of(config["driver"]) if "agent" in config["how"] else int(config["driver"])


def _meet(notes: Path, what: str, number: int) -> None:
    (notes / f"{what}-{number}").touch()
    deadline = time.monotonic() + _PATIENCE_S
    while not all((notes / f"{what}-{other}").exists() for other in (0, 1)):
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


if __name__ == "__main__":
    tuner = tune.Tuner(
        count,
        param_space={
            "number": tune.grid_search([0, 1]),
            "notes": sys.argv[2],
            "driver": os.getpid(),
            "how": sys.argv[3:],
        },
        tune_config=tune.TuneConfig(metric="epoch", mode="max", max_concurrent_trials=2),
        run_config=tune.RunConfig(
            storage_path=sys.argv[1], name="returned", verbose=0, failure_config=tune.FailureConfig(max_failures=1)
        ),
    )
    grid = tuner.fit()
    print(json.dumps([list(result.metrics_dataframe["epoch"]) for result in grid]))
