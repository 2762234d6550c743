"""Keras over a shard of a dataset, whose rows the model counts; a checkpoint after each epoch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from holdfast import train
from holdfast.train.tensorflow import TensorflowCheckpoint, TensorflowTrainer, prepare_dataset_shard
from holdfast.train.tensorflow.keras import KerasReportCallback, resumed_model
from support.frameworks.counted_rows import BATCH, END, EPOCHS, ROWS, datasets, note_counts
from support.frameworks.framework_job import note, run, strike

FAR = 1000.0  # what the model is to reach; the slope of the loss is then one for each row


def build() -> Any:
    counts = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = tf.keras.Sequential([tf.keras.layers.Input((ROWS,)), counts])
    # With this reduction, the gradients of the ranks are added.
    model.compile(optimizer=tf.keras.optimizers.SGD(1.0), loss=tf.keras.losses.MeanAbsoluteError(reduction="sum"))
    return model


class Reports(KerasReportCallback):  # type: ignore[misc]
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        strike(self.config, int(self.model.optimizer.iterations.numpy()))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        assert train.get_dataset_shard("train").epoch == epoch  # its rows were in the order of this epoch
        note_counts(self.config, epoch + 1, self.model.get_weights()[0].flatten())


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model, epoch = resumed_model(build())
    data = train.get_dataset_shard("train").to_tf("id", "y", batch_size=BATCH)
    data = prepare_dataset_shard(data.map(lambda row, y: (tf.one_hot(row, ROWS), y + FAR)))
    model.fit(data, epochs=EPOCHS, initial_epoch=epoch, callbacks=[Reports(config)], verbose=0)
    strike(config, END)


def digest(directory: str) -> bytes:
    return bytes(np.concatenate(TensorflowCheckpoint(Path(directory)).get_model().get_weights()).tobytes())


if __name__ == "__main__":
    run(TensorflowTrainer, train_fn, digest, "epoch", datasets=datasets())
