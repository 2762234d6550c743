"""LightGBM on the data of two workers. The guide docs/lightgbm.md explains it."""

import lightgbm
import numpy as np
import pandas as pd

import holdfast.data
from holdfast import train
from holdfast.train.lightgbm import LightGBMReportCallback, LightGBMTrainer, get_network_params, remaining_rounds


def train_fn():
    rows = train.get_dataset_shard("train").materialize().to_pandas()  # of this worker
    data = lightgbm.Dataset(rows.drop(columns="y"), rows["y"], free_raw_data=False)  # needed to continue with a model
    lightgbm.train(
        {
            "objective": "regression",
            "deterministic": True,
            "tree_learner": "data",
            "pre_partition": True,
            "verbose": -1,
            **get_network_params(),
        },
        data,
        valid_sets=[data],
        valid_names=["train"],
        callbacks=[LightGBMReportCallback(frequency=5)],  # a checkpoint every 5 rounds, and at the end
        **remaining_rounds(20),  # num_boost_round, and the model to continue with
    )


if __name__ == "__main__":
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 5)), columns=list("abcde"))
    result = LightGBMTrainer(
        train_fn,
        datasets={"train": holdfast.data.from_pandas(table.assign(y=table.sum(axis=1)))},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="lightgbm", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    booster = LightGBMReportCallback.get_model(result.checkpoint)
    print(result.metrics, booster.current_iteration())
