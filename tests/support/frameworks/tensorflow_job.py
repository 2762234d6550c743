"""Keras over two workers in a MultiWorkerMirroredStrategy, a checkpoint after each epoch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from holdfast import train
from holdfast.train.tensorflow import TensorflowCheckpoint, TensorflowTrainer, prepare_dataset_shard
from holdfast.train.tensorflow.keras import ReportCheckpointCallback, resumed_model
from support.frameworks.framework_job import note, run, strike

EPOCHS = 6


def build() -> Any:
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
    )
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse")
    return model


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    context = train.get_context()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == context.get_world_size()
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    mine = slice(context.get_world_rank(), None, context.get_world_size())
    data = prepare_dataset_shard(tf.data.Dataset.from_tensor_slices((x[mine], y[mine])).batch(8, drop_remainder=True))
    with strategy.scope():
        model, epoch = resumed_model(build())

    class Strikes(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            strike(config, epoch + 1)

    callbacks = [Strikes(), ReportCheckpointCallback()]
    model.fit(data, epochs=EPOCHS, initial_epoch=epoch, callbacks=callbacks, verbose=0)


def digest(directory: str) -> bytes:
    model = TensorflowCheckpoint(Path(directory)).get_model()
    return b"".join(weight.tobytes() for weight in model.get_weights())


if __name__ == "__main__":
    run(TensorflowTrainer, train_fn, digest, "epoch")
