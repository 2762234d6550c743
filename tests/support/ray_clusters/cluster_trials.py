"""Trials that say on which node they are, and continue until a test has seen enough; and a script that tunes them.

``python cluster_trials.py HOME`` runs, or continues with, the experiment "trials" there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast import tune
from support.elastic.elastic_job import node_id, note
from support.ray_clusters.cluster_objects import shelf

PATIENCE_S = 240.0
TOGETHER = 4


def together(config: dict[str, Any]) -> None:
    """Ends when so many trials run at the same time."""
    home = Path(config["home"])
    note(config, "begun", config["number"], node_id())
    deadline = time.monotonic() + PATIENCE_S
    while len((home / "notes").read_text().splitlines()) < TOGETHER and time.monotonic() < deadline:
        time.sleep(0.01)
    tune.report({"cpus": tune.get_context().get_trial_resources().required_resources["CPU"]})


class Counter(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.total = 0

    def step(self) -> dict[str, Any]:
        self.total += self.config["step"]
        return {"total": self.total, "done": self.iteration >= 2, "node": node_id()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "total").write_text(str(self.total))

    def load_checkpoint(self, checkpoint_dir: Any) -> None:
        self.total = int(Path(checkpoint_dir, "total").read_text())


def on_two_nodes(config: dict[str, Any]) -> None:
    """The train function of a trainer that is a trial."""
    context = train.get_context()
    note(config, "rank", config["number"], context.get_world_rank(), context.get_world_size(), node_id())
    train.report({"number": config["number"]})


def until_released(config: dict[str, Any]) -> dict[str, Any]:
    """The first trial ends when the second runs, which ends when the third does."""
    deadline = time.monotonic() + PATIENCE_S
    number, home = config["number"], Path(config["home"])
    (home / f"runs-{number}").touch()
    while number < 2 and not (home / f"runs-{number + 1}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return {"number": number}


def endless(config: dict[str, Any]) -> None:
    """Counts, and saves with each report, until there is a file that says it is enough."""
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            step = json.loads(Path(directory, "state.json").read_text())
    note(config, "start", config["number"], step, os.getpid(), node_id())
    note(config, "shelf", str(shelf()))
    while not Path(config["home"], "enough").exists() or step == 0:
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "state.json").write_text(json.dumps(step))
            tune.report({"step": step}, checkpoint=tune.Checkpoint.from_directory(directory))
        note(config, "step", config["number"], step)
        time.sleep(0.02)


def tuner(home: Path, trainable: Any, space: dict[str, Any], engine: str | None = "ray", **options: Any) -> tune.Tuner:
    common = {"home": str(home), "notes": str(home / "notes")}
    if isinstance(trainable, train.DataParallelTrainer):
        space = {"train_loop_config": {**common, **space}}
    else:
        space = {**common, **space}
    failure = tune.FailureConfig(max_failures=options.pop("max_failures", 0), backoff_s=0.01)
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**options),
        run_config=tune.RunConfig(
            name="trials", storage_path=str(home), engine=engine, failure_config=failure, verbose=0
        ),
    )


if __name__ == "__main__":
    tuner(Path(sys.argv[1]), endless, {"number": tune.grid_search([0, 1])}, engine=None).fit()
