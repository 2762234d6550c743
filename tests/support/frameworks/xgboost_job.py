"""XGBoost on the data of two workers, a checkpoint every second round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from holdfast import train
from holdfast.train.xgboost import RayTrainReportCallback, XGBoostTrainer, remaining_rounds
from support.frameworks.framework_job import note, run, strike

ROUNDS = 10


class Strikes(xgboost.callback.TrainingCallback):
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        strike(self.config, model.num_boosted_rounds())
        return False


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    context = train.get_context()
    x = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    y = x @ np.arange(5) + np.sin(4 * x[:, 0])
    mine = slice(context.get_world_rank(), None, context.get_world_size())
    data = xgboost.DMatrix(x[mine], y[mine])
    assert xgboost.collective.get_rank() == context.get_world_rank()
    assert xgboost.collective.get_world_size() == context.get_world_size()
    xgboost.train(
        {"tree_method": "hist", "max_depth": 4, "eta": 0.3, "nthread": 1, "eval_metric": "rmse"},
        data,
        evals=[(data, "train")],
        verbose_eval=False,
        callbacks=[RayTrainReportCallback(frequency=2), Strikes(config)],
        **remaining_rounds(ROUNDS),
    )


def digest(directory: str) -> bytes:
    return bytes(Path(directory, "model.ubj").read_bytes())


if __name__ == "__main__":
    run(XGBoostTrainer, train_fn, digest, "round")
