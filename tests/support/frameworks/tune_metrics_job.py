"""Trials that report metrics alone, with each framework: ``python tune_metrics_job.py STORAGE``."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from holdfast import train, tune

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = X.sum(1)


def with_keras() -> None:
    import tensorflow as tf

    from holdfast.tune.integration.keras import TuneReportCallback

    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(X, Y, epochs=3, verbose=0, callbacks=[TuneReportCallback("loss")])


def with_xgboost() -> None:
    import xgboost

    from holdfast.tune.integration.xgboost import TuneReportCallback

    data, report = xgboost.DMatrix(X, Y), TuneReportCallback({"loss": "train-rmse"})
    xgboost.train({"nthread": 1}, data, 3, evals=[(data, "train")], verbose_eval=False, callbacks=[report])


def with_lightgbm() -> None:
    import lightgbm
    import pandas as pd

    from holdfast.train.lightgbm import normalize_pandas_for_lightgbm
    from holdfast.tune.integration.lightgbm import TuneReportCallback

    frame = pd.DataFrame(X, columns=list("abcd")).convert_dtypes(dtype_backend="pyarrow")
    data, report = lightgbm.Dataset(normalize_pandas_for_lightgbm(frame), Y), TuneReportCallback({"loss": "train-l2"})
    parameters = {"objective": "regression", "metric": "l2", "verbose": -1, "num_threads": 1}
    lightgbm.train(parameters, data, 3, valid_sets=[data], valid_names=["train"], callbacks=[report])


FUNCTIONS = {"keras": with_keras, "xgboost": with_xgboost, "lightgbm": with_lightgbm}


def objective(config: dict[str, Any]) -> None:
    FUNCTIONS[config["framework"]]()


def main() -> None:
    tuner = tune.Tuner(
        objective,
        param_space={"framework": tune.grid_search(list(FUNCTIONS))},
        run_config=train.RunConfig(name="trials", storage_path=sys.argv[1], verbose=0),
    )
    found = {}
    for result in tuner.fit():
        assert result.error is None, result.error
        assert result.config is not None
        assert result.metrics is not None
        shown = [result.metrics["training_iteration"], "loss" in result.metrics, result.checkpoint is None]
        found[result.config["framework"]] = shown
    print(json.dumps(found))


if __name__ == "__main__":
    main()
