"""LightGBM on the data of two workers, a checkpoint every second round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from holdfast import train
from holdfast.train.lightgbm import LightGBMTrainer, RayTrainReportCallback, get_network_params, remaining_rounds
from support.frameworks.framework_job import note, run, strike

ROUNDS = 10


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    context = train.get_context()
    x = np.random.default_rng(0).normal(size=(400, 5))
    y = x @ np.arange(5) + np.sin(4 * x[:, 0])
    mine = slice(context.get_world_rank(), None, context.get_world_size())
    data = lightgbm.Dataset(x[mine], y[mine], free_raw_data=False)

    def strikes(env: Any) -> None:
        strike(config, env.iteration + 1)

    strikes.order = 99  # type: ignore[attr-defined]
    lightgbm.train(
        {
            "objective": "regression",
            "metric": "l2",
            "num_leaves": 7,
            "num_threads": 1,
            "deterministic": True,
            "tree_learner": "data",
            "pre_partition": True,
            "verbose": -1,
            **get_network_params(),
        },
        data,
        valid_sets=[data],
        valid_names=["train"],
        callbacks=[RayTrainReportCallback(frequency=2), strikes],
        **remaining_rounds(ROUNDS),
    )


def digest(directory: str) -> bytes:
    return Path(directory, "model.txt").read_bytes()


if __name__ == "__main__":
    run(LightGBMTrainer, train_fn, digest, "round")
