"""XGBoost on the data of two workers. The guide docs/xgboost.md explains it."""

import numpy as np
import pandas as pd
import xgboost

import holdfast.data
from holdfast import train
from holdfast.train.xgboost import XGBoostReportCallback, XGBoostTrainer, remaining_rounds


def train_fn():
    rows = train.get_dataset_shard("train").materialize().to_pandas()  # of this worker
    data = xgboost.DMatrix(rows.drop(columns="y"), rows["y"])
    xgboost.train(
        {"max_depth": 4, "eval_metric": "rmse"},
        data,
        evals=[(data, "train")],
        verbose_eval=False,
        callbacks=[XGBoostReportCallback(frequency=5)],  # a checkpoint every 5 rounds, and at the end
        **remaining_rounds(20),  # num_boost_round, and the model to continue with
    )


if __name__ == "__main__":
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 5)), columns=list("abcde"))
    result = XGBoostTrainer(
        train_fn,
        datasets={"train": holdfast.data.from_pandas(table.assign(y=table.sum(axis=1)))},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="xgboost", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    booster = XGBoostReportCallback.get_model(result.checkpoint)
    print(result.metrics, booster.num_boosted_rounds())
