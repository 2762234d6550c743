"""Trials that train with each framework by themselves: ``python tune_job.py STORAGE``. One trial is killed, once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from holdfast import train, tune

ROUNDS = 4
X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = X.sum(1)


def with_lightning() -> None:
    import lightning.pytorch as pl
    import torch

    from holdfast.tune.integration.pytorch_lightning import TuneReportCheckpointCallback

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

    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    report = TuneReportCheckpointCallback({"loss": "train_loss"}, filename="line.ckpt", on="train_epoch_end")
    trainer = pl.Trainer(max_epochs=ROUNDS, accelerator="cpu", logger=False, callbacks=[report], **quiet)
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    trainer.fit(Line(), torch.utils.data.DataLoader(data, batch_size=32))


def with_keras() -> None:
    import tensorflow as tf

    from holdfast.tune.integration.keras import TuneReportCheckpointCallback

    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(X, Y, epochs=ROUNDS, verbose=0, callbacks=[TuneReportCheckpointCallback()])


def with_xgboost() -> None:
    import xgboost

    from holdfast.tune.integration.xgboost import TuneReportCheckpointCallback

    data = xgboost.DMatrix(X, Y)
    report = TuneReportCheckpointCallback({"loss": "train-rmse"}, frequency=1)
    xgboost.train({"nthread": 1}, data, ROUNDS, evals=[(data, "train")], verbose_eval=False, callbacks=[report])


def with_lightgbm() -> None:
    import lightgbm

    from holdfast.tune.integration.lightgbm import TuneReportCheckpointCallback

    data = lightgbm.Dataset(X, Y)
    report = TuneReportCheckpointCallback({"loss": "train-l2"}, frequency=1)
    parameters = {"objective": "regression", "metric": "l2", "verbose": -1, "num_threads": 1}
    lightgbm.train(parameters, data, ROUNDS, valid_sets=[data], valid_names=["train"], callbacks=[report])


FUNCTIONS = {"lightning": with_lightning, "keras": with_keras, "xgboost": with_xgboost, "lightgbm": with_lightgbm}


def objective(config: dict[str, Any]) -> None:
    if config["framework"] == "xgboost":
        try:
            Path(config["home"], "struck").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    FUNCTIONS[config["framework"]]()


def main() -> None:
    home = sys.argv[1]
    tuner = tune.Tuner(
        objective,
        param_space={"framework": tune.grid_search(list(FUNCTIONS)), "home": home},
        run_config=train.RunConfig(
            name="trials", storage_path=home, failure_config=train.FailureConfig(max_failures=1), verbose=0
        ),
    )
    found = {}
    for result in tuner.fit():
        assert result.error is None, result.error
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as directory:
            files = sorted(name for name in os.listdir(directory) if not name.startswith("."))
        assert result.config is not None
        assert result.metrics is not None
        found[result.config["framework"]] = [result.metrics["training_iteration"], files, "loss" in result.metrics]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
