"""Small Horovod runs: ``python horovod_stories.py STORAGE NAME``; each prints what it found, as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import horovod.torch as hvd
import torch

from holdfast import train, tune
from holdfast.errors import WorkerGroupError
from holdfast.train.horovod import HorovodConfig, HorovodTrainer


def early_fn() -> list[Any]:
    """Rank 1 returns while rank 0 is still at work, and asks Horovod who it is."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if hvd.rank() == 0:
        time.sleep(1)  # so that a rank 1 that does not wait is gone
    return [hvd.rank(), hvd.size(), hvd.is_initialized()]


def raising_fn() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if hvd.rank() == 1:
        raise ValueError("planned")
    while True:  # until it is told that the others are gone
        hvd.allreduce(torch.ones(1))


def tuned_fn(config: dict[str, Any]) -> None:
    hvd.init()
    train.report({"sum": hvd.allreduce(torch.ones(1) * config["value"], op=hvd.Sum).item() / 2, "size": hvd.size()})


def trainer(fn: Any, storage: str) -> HorovodTrainer:
    return HorovodTrainer(
        fn,
        horovod_config=HorovodConfig(timeout_s=60),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="story", storage_path=storage, verbose=0),
    )


def early(storage: str) -> Any:
    return trainer(early_fn, storage).fit().return_value


def raises(storage: str) -> Any:
    try:
        trainer(raising_fn, storage).fit()
    except WorkerGroupError as error:
        first, cause = min(error.worker_failures.items())
        return [first, repr(cause), "planned" in error.error_message]
    return None


def tuned(storage: str) -> Any:
    tuner = tune.Tuner(
        HorovodTrainer(tuned_fn, scaling_config=train.ScalingConfig(num_workers=2)),
        param_space={"train_loop_config": {"value": tune.grid_search([1, 2])}, "horovod_config": HorovodConfig()},
        run_config=train.RunConfig(name="tuned", storage_path=storage, verbose=0),
    )
    results = tuner.fit()
    found = [result.metrics for result in results if result.metrics is not None]
    return [sorted(metrics["sum"] for metrics in found), [metrics["size"] for metrics in found], len(results.errors)]


if __name__ == "__main__":
    print(json.dumps({"early": early, "raises": raises, "tuned": tuned}[sys.argv[2]](sys.argv[1])))
