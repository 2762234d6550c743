"""An experiment whose trials note their epochs: ``python stopped_experiment.py STORAGE MARKS``.

The trials of each driver have a file of their own below MARKS, named for the driver's process.
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

EPOCHS = 150  # they take longer than the lease, as the trials of a stopped driver continue
TRIALS = 2


def train_fn(config: dict[str, Any]) -> None:
    epoch = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            epoch = json.loads(Path(directory, "state.json").read_text())
    while epoch < EPOCHS:
        epoch += 1
        time.sleep(0.3)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps(epoch))
            tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(directory))
        with open(Path(config["marks"], os.environ["DRIVER"]), "a") as file:
            file.write(f"{epoch}\n")


def main() -> None:
    os.environ["DRIVER"] = str(os.getpid())
    tune.Tuner(
        train_fn,
        param_space={"marks": sys.argv[2], "x": tune.grid_search([*range(TRIALS)])},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="experiment", verbose=0),
    ).fit()


if __name__ == "__main__":
    main()
