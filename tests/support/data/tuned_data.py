"""Guide 002's script over datasets, with the import root changed: ``python tuned_data.py STORAGE fit|restore``.

The trials wait in the middle until the file ``go`` is in the storage directory, so that a test can kill them there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

import holdfast
import holdfast.data
from holdfast import train, tune

STORAGE, HOW = sys.argv[1], sys.argv[2]


def train_loop() -> None:
    shard = train.get_dataset_shard("train")
    total, batches = 0, 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            with open(os.path.join(directory, "state.json")) as f:
                total, batches, state = json.load(f)
        shard.load_state_dict(state)
    for batch in shard.iter_batches(batch_size=16):
        total, batches = total + int(batch["y"].sum()), batches + 1
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "state.json"), "w") as f:
                json.dump([total, batches, shard.state_dict()], f)
            train.report({"total": total, "batches": batches}, checkpoint=train.Checkpoint.from_directory(directory))
        while batches == 4 and not os.path.exists(os.path.join(STORAGE, "go")):
            time.sleep(0.02)


def param_space() -> dict[str, Any]:
    ds_1 = holdfast.data.from_items([{"x": i, "y": 2 * i} for i in range(128)])
    ds_2 = holdfast.data.from_items([{"x": i, "y": 3 * i} for i in range(128)])
    return {"datasets": {"train": tune.grid_search([ds_1, ds_2])}}


if __name__ == "__main__":
    trainer = train.DataParallelTrainer(train_loop)
    path = os.path.join(STORAGE, "tuned")
    if HOW == "fit":
        run = tune.RunConfig(storage_path=STORAGE, name="tuned", verbose=0)
        grid = tune.Tuner(trainer, param_space=param_space(), run_config=run).fit()
    else:
        grid = tune.Tuner.restore(path, trainable=trainer, param_space=param_space(), resume_errored=True).fit()
    assert not grid.errors, grid.errors
    print(json.dumps([[result.metrics["total"], result.metrics["batches"]] for result in grid]))
