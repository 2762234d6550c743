"""A script that trains twice: whether a worker of each fit() starts with what DDP imports late."""

from __future__ import annotations

import sys
import time

from holdfast import train
from holdfast.node import seed
from holdfast.train.torch import TorchTrainer

WARM_WITHIN_S = 120.0


def train_fn() -> bool:
    found = "torch._dynamo" in sys.modules
    train.report({"step": 1})
    return found


def fit(number: int) -> bool:
    run = train.RunConfig(name=f"run-{number}", storage_path=sys.argv[1], verbose=0)
    return bool(TorchTrainer(train_fn, run_config=run).fit().return_value)


if __name__ == "__main__":
    first = fit(1)
    planted = seed.planted()
    assert planted is not None
    deadline = time.monotonic() + WARM_WITHIN_S
    while not planted._learn_if_copy_is_warm() and time.monotonic() < deadline:
        time.sleep(0.05)
    print(first, fit(2))
