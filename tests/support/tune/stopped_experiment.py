"""An experiment whose trials note their epochs: ``python stopped_experiment.py STORAGE MARKS ROLE``.

The trials of each driver have a file of their own below MARKS, named for its role. Those of the first one wait in the
middle until MARKS has a file "continued", those of the second one, close to the end, for a file "ended".
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import tune

EPOCHS = 40
TRIALS = 2
HOLDS = {("first", 10): "continued", ("second", 30): "ended"}
WITHIN_S = 120.0


def train_fn(config: dict[str, Any]) -> None:
    epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            epoch = json.loads(Path(directory, "state.json").read_text())
    while epoch < EPOCHS:
        epoch += 1
        hold(Path(config["marks"]), epoch)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps(epoch))
            tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(directory))
        with open(Path(config["marks"], os.environ["ROLE"]), "a") as file:
            file.write(f"{epoch}\n")


def hold(marks: Path, epoch: int) -> None:
    awaited = HOLDS.get((os.environ["ROLE"], epoch))
    deadline = time.monotonic() + WITHIN_S
    while awaited is not None and not (marks / awaited).exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def main() -> None:
    os.environ["ROLE"] = sys.argv[3]
    tune.Tuner(
        train_fn,
        param_space={"marks": sys.argv[2], "x": tune.grid_search([*range(TRIALS)])},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="experiment", verbose=0),
    ).fit()


if __name__ == "__main__":
    main()
