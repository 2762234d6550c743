"""Guide 002's script over datasets, import root changed: ``python tuned_data.py STORAGE fit|restore [ADDRESS]``.

With the address of a Ray cluster, the datasets are Ray Data's, and the trials run there. The trials wait in the middle
until the file ``go`` is in the storage directory, so that a test can kill them there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any

import pytest

import holdfast
import holdfast.data
from holdfast import train, tune

STORAGE, HOW, *ADDRESS = sys.argv[1:]


def train_loop() -> None:
    shard = train.get_dataset_shard("train")
    total, batches = 0, 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            with open(os.path.join(directory, "state.json")) as f:
                total, batches, state = json.load(f)
        if state is None:  # Ray's have no cursor
            total, batches = 0, 0
        else:
            shard.load_state_dict(state)
    for batch in shard.iter_batches(batch_size=16):
        total, batches = total + int(batch["y"].sum()), batches + 1
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "state.json"), "w") as f:
                json.dump([total, batches, None if ADDRESS else shard.state_dict()], f)
            train.report({"total": total, "batches": batches}, checkpoint=train.Checkpoint.from_directory(directory))
        while batches == 4 and not os.path.exists(os.path.join(STORAGE, "go")):
            time.sleep(0.02)


def param_space() -> dict[str, Any]:
    library: Any = holdfast.data
    if ADDRESS:
        import ray

        ray.init(address=ADDRESS[0], logging_level="ERROR", log_to_driver=False)
        library = ray.data
    ds_1 = library.from_items([{"x": i, "y": 2 * i} for i in range(128)])
    ds_2 = library.from_items([{"x": i, "y": 3 * i} for i in range(128)])
    return {"datasets": {"train": tune.grid_search([ds_1, ds_2])}}


if __name__ == "__main__":
    trainer = train.DataParallelTrainer(train_loop)
    path = os.path.join(STORAGE, "tuned")
    if HOW == "fit":
        run = tune.RunConfig(storage_path=STORAGE, name="tuned", engine="ray" if ADDRESS else "local", verbose=0)
        grid = tune.Tuner(trainer, param_space=param_space(), run_config=run).fit()
    else:
        with pytest.raises(ValueError, match=r"param_space=.*pass it again"):
            tune.Tuner.restore(path, trainable=trainer)
        grid = tune.Tuner.restore(path, trainable=trainer, param_space=param_space(), resume_errored=True).fit()
    assert not grid.errors, grid.errors
    print(json.dumps([[result.metrics["total"], result.metrics["batches"]] for result in grid]))
