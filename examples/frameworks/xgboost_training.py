"""XGBoost on the data of two workers. The guide docs/xgboost.md explains it."""

import numpy as np
import xgboost

from holdfast import train
from holdfast.train.xgboost import XGBoostReportCallback, XGBoostTrainer, remaining_rounds


def train_fn():
    context = train.get_context()
    x = np.random.default_rng(0).normal(size=(400, 5))
    mine = slice(context.get_world_rank(), None, context.get_world_size())
    data = xgboost.DMatrix(x[mine], x.sum(1)[mine])
    xgboost.train(
        {"max_depth": 4, "eval_metric": "rmse"},
        data,
        evals=[(data, "train")],
        verbose_eval=False,
        callbacks=[XGBoostReportCallback(frequency=5)],  # a checkpoint every 5 rounds, and at the end
        **remaining_rounds(20),  # num_boost_round, and the model to continue with
    )


if __name__ == "__main__":
    result = XGBoostTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="xgboost", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    booster = XGBoostReportCallback.get_model(result.checkpoint)
    print(result.metrics, booster.num_boosted_rounds())
