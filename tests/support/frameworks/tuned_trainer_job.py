"""A trainer of a framework as a trainable: ``python tuned_trainer_job.py STORAGE``."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import xgboost

from holdfast import train, tune
from holdfast.train.xgboost import RayTrainReportCallback, XGBoostConfig, XGBoostTrainer, remaining_rounds


def train_fn(config: dict[str, Any]) -> None:
    context = train.get_context()
    assert xgboost.collective.get_world_size() == 2
    x = np.random.default_rng(0).normal(size=(200, 4))
    data = xgboost.DMatrix(x[context.get_world_rank() :: 2], x.sum(1)[context.get_world_rank() :: 2])
    parameters = {"max_depth": config["depth"], "eval_metric": "rmse"}
    callbacks = [RayTrainReportCallback(frequency=2)]
    xgboost.train(
        parameters, data, evals=[(data, "train")], verbose_eval=False, callbacks=callbacks, **remaining_rounds(4)
    )


def main() -> None:
    trainer = XGBoostTrainer(train_fn, scaling_config=train.ScalingConfig(num_workers=2))
    depths = tune.grid_search([1, 4])
    tuner = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"depth": depths}, "xgboost_config": XGBoostConfig()},
        tune_config=tune.TuneConfig(metric="train-rmse", mode="min"),
        run_config=train.RunConfig(name="tuned", storage_path=sys.argv[1], verbose=0),
    )
    results = tuner.fit()
    best = results.get_best_result()
    assert best.config is not None
    assert best.checkpoint is not None
    rounds = RayTrainReportCallback.get_model(best.checkpoint).num_boosted_rounds()
    print(json.dumps([best.config["train_loop_config"]["depth"], rounds, len(results.errors)]))


if __name__ == "__main__":
    main()
