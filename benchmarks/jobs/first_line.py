"""Job: write down when the train function's first line ran, and return."""

import json
import os
import sys
import time

import torch  # noqa: F401  as a user's script does

import holdfast.train
from holdfast.train.torch import TorchTrainer


def train_fn(config):
    entered = time.monotonic()
    rank = holdfast.train.get_context().get_world_rank()
    path = os.path.join(config["log"], str(rank))
    with open(path + ".new", "w") as file:
        file.write(str(entered))
    os.rename(path + ".new", path)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2),
        run_config=holdfast.train.RunConfig(name="first_line", storage_path=arguments["storage"]),
    ).fit()
