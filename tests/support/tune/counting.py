"""A trainable whose result tells all of its past, for the tests of tuning; and a script that tunes it.

``python counting.py STORAGE SCHEDULER`` runs, or continues with, the experiment "counted" there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTraining, TrialScheduler

EPOCHS = 8
SCHEDULERS: dict[str, Any] = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=EPOCHS, grace_period=2, reduction_factor=2),
    "pbt": lambda: PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=2, hyperparam_mutations={"step": [1, 2, 3]}, seed=1
    ),
}


def count(config: dict[str, Any]) -> None:
    """Adds ``step`` in every epoch, and saves with each. What it did is in a file beside the experiment, too."""
    epoch, total = 0, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            epoch, total = json.loads(Path(directory, "state.json").read_text())
    log = Path(tune.get_context().get_trial_dir()).parent.parent / "epochs.log"
    while epoch < EPOCHS:
        epoch, total = epoch + 1, total + config["step"]
        time.sleep(config.get("pause_s", 0.0))
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps([epoch, total]))
            with log.open("a") as file:
                file.write(f"{tune.get_context().get_trial_id()} {epoch}\n")
            tune.report({"epoch": epoch, "total": total}, checkpoint=tune.Checkpoint.from_directory(directory))


class Backup(tune.Callback):
    """Copies the experiment, lease.json too, as a person's script may."""

    def __init__(self, target: str) -> None:
        self._target = target

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        own = Path(trial.local_path)  # trials are being written
        ignored = shutil.ignore_patterns(".*", f"{own.name.split('_')[0]}_*")
        shutil.copytree(own.parent, Path(self._target, f"{trial.trial_id}-{result['epoch']}"), ignore=ignored)


def tuner(
    storage: str, scheduler: TrialScheduler | None = None, samples: int = 4, step: Any = None, **config: Any
) -> tune.Tuner:
    return tune.Tuner(
        count,
        param_space={"step": step or tune.randint(1, 10), "pause_s": float(os.environ.get("PAUSE_S", "0"))},
        tune_config=tune.TuneConfig(
            metric="total", mode="max", num_samples=samples, scheduler=scheduler, max_concurrent_trials=2, **config
        ),
        run_config=tune.RunConfig(
            storage_path=storage,
            name="counted",
            verbose=0,
            callbacks=[Backup(os.environ["BACKUP"])] if "BACKUP" in os.environ else None,
        ),
    )


if __name__ == "__main__":
    tuner(sys.argv[1], SCHEDULERS[sys.argv[2]]()).fit()
