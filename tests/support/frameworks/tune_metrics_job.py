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


def with_lightning() -> None:
    import lightning.pytorch as pl
    import torch

    from holdfast.tune.integration.pytorch_lightning import TuneReportCallback

    class Line(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = torch.nn.functional.mse_loss(self.layer(batch[0]).squeeze(1), batch[1])
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    report = TuneReportCallback({"loss": "train_loss"}, on="train_epoch_end")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    trainer = pl.Trainer(max_epochs=3, accelerator="cpu", callbacks=[report], **quiet)
    trainer.fit(Line(), torch.utils.data.DataLoader(data, batch_size=32))


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


FUNCTIONS = {"lightning": with_lightning, "keras": with_keras, "xgboost": with_xgboost, "lightgbm": with_lightgbm}


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
