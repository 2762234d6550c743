"""LightGBM on the data of two workers. The guide docs/lightgbm.md explains it."""

import lightgbm
import numpy as np

from holdfast import train
from holdfast.train.lightgbm import LightGBMReportCallback, LightGBMTrainer, get_network_params, remaining_rounds


def train_fn():
    context = train.get_context()
    x = np.random.default_rng(0).normal(size=(400, 5))
    mine = slice(context.get_world_rank(), None, context.get_world_size())
    data = lightgbm.Dataset(x[mine], x.sum(1)[mine], free_raw_data=False)  # needed to continue with a model
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
    result = LightGBMTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="lightgbm", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    booster = LightGBMReportCallback.get_model(result.checkpoint)
    print(result.metrics, booster.current_iteration())
