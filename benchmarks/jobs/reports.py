"""Job: make reports without a checkpoint as fast as report() takes them, and write down the time of each round."""

import json
import os
import sys
import time

import torch  # noqa: F401  as a user's script does

import holdfast.train
from holdfast.train.torch import TorchTrainer


def train_fn(config):
    rank = holdfast.train.get_context().get_world_rank()
    times = []
    first = time.monotonic()
    for number in range(config["rounds"] + 1):  # the first one warms up
        began = time.monotonic()
        for step in range(config["reports"]):
            holdfast.train.report({"step": number * config["reports"] + step, "loss": 1.0 / (step + 1), "rate": 0.1})
        times.append(time.monotonic() - began)
    with open(os.path.join(config["log"], str(rank)), "w") as file:
        json.dump({"rounds": times[1:], "first": first}, file)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    TorchTrainer(
        train_fn,
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2),
        run_config=holdfast.train.RunConfig(name="reports", storage_path=arguments["storage"]),
    ).fit()
    with open(os.path.join(arguments["log"], "fit"), "w") as file:
        file.write(str(time.monotonic()))
