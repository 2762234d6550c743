"""Checkpoints that hold a framework's model, and ready batches for Transformers: ``python framework_checkpoints.py
FUNCTION`` checks one of them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = X.sum(1)


def check_tensorflow() -> None:
    import tensorflow as tf

    from holdfast.train.tensorflow import TensorflowCheckpoint

    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss=tf.keras.losses.MeanSquaredError())  # Keras cannot load "mse" from an .h5 file
    model.fit(X, Y, epochs=1, verbose=0)
    expected = model.predict(X, verbose=0)
    whole = TensorflowCheckpoint.from_model(model).get_model()
    assert np.array_equal(whole.predict(X, verbose=0), expected)
    assert int(whole.optimizer.iterations) == int(model.optimizer.iterations) > 0

    with tempfile.TemporaryDirectory() as directory:
        model.save(f"{directory}/own.h5")
        from_h5 = TensorflowCheckpoint.from_h5(f"{directory}/own.h5")
        model.export(f"{directory}/exported", verbose=False)
        from_saved = TensorflowCheckpoint.from_saved_model(f"{directory}/exported")
        with pytest.raises(ValueError, match="pass the path of an"):
            TensorflowCheckpoint.from_h5(f"{directory}/exported")
        with pytest.raises(ValueError, match="pass a directory"):
            TensorflowCheckpoint.from_saved_model(f"{directory}/own.h5")
    assert np.array_equal(from_h5.get_model().predict(X, verbose=0), expected)
    served = from_saved.get_model()  # its functions need it
    assert np.allclose(served.serve(X), expected)


def check_xgboost() -> None:
    import xgboost

    from holdfast.train.xgboost import XGBoostCheckpoint

    data = xgboost.DMatrix(X, Y)
    model = xgboost.train({"nthread": 1}, data, 3)
    _check_booster(XGBoostCheckpoint, model, lambda found: found.predict(data), "model.json")


def check_lightgbm() -> None:
    import lightgbm

    from holdfast.train.lightgbm import LightGBMCheckpoint

    parameters = {"objective": "regression", "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1}
    model = lightgbm.train(parameters, lightgbm.Dataset(X, Y), 3)
    _check_booster(LightGBMCheckpoint, model, lambda found: found.predict(X), "model.txt")


def _check_booster(kind: Any, model: Any, predict: Any, file: str) -> None:
    expected = predict(model)
    assert np.ptp(expected) > 0
    made = kind.from_model(model)
    assert np.array_equal(predict(made.get_model()), expected)
    with tempfile.TemporaryDirectory() as directory:
        assert kind.from_model(model, path=directory).path == directory
        assert [found.name for found in Path(directory).iterdir()] == [file]
        assert np.array_equal(predict(kind(directory).get_model()), expected)


class _Batches:
    """Neither a torch data set nor a list: Transformers alone would refuse it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        import torch

        return iter([{"x": torch.full((self.size,), 2.0)} for _ in range(3)])


def check_transformers_batches() -> None:
    """Six steps are two epochs; each has all batches as they are."""
    import torch
    from transformers import Trainer, TrainingArguments

    from holdfast.train.huggingface.transformers import prepare_trainer

    seen: list[tuple[int, bool]] = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: Any) -> Any:
            seen.append((len(x), self.training))
            return {"loss": (x * self.weight).sum()}

    with tempfile.TemporaryDirectory() as directory:
        quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
        arguments = TrainingArguments(output_dir=directory, max_steps=6, **quiet)
        trainer = Trainer(Model(), arguments, train_dataset=_Batches(5), eval_dataset={"own": _Batches(7)})
        assert prepare_trainer(trainer) is trainer
        assert type(trainer).__name__ == "Trainer"
        trainer.train()
        assert seen == [(5, True)] * 6
        assert "eval_own_runtime" in trainer.evaluate()
        assert seen[6:] == [(7, False)] * 3


if __name__ == "__main__":
    globals()[sys.argv[1]]()
