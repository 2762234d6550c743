"""Keras over two workers, in a MultiWorkerMirroredStrategy. The guide docs/tensorflow.md explains it."""

import numpy as np
import tensorflow as tf

from holdfast import train
from holdfast.train.tensorflow import TensorflowTrainer, prepare_dataset_shard
from holdfast.train.tensorflow.keras import KerasReportCallback, resumed_model


def build():
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    return model


def train_fn():
    context = train.get_context()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation of TensorFlow
    x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
    y = x.sum(1, keepdims=True)
    mine = slice(context.get_world_rank(), None, context.get_world_size())
    data = tf.data.Dataset.from_tensor_slices((x[mine], y[mine])).batch(16)
    with strategy.scope():
        model, epoch = resumed_model(build())
    model.fit(prepare_dataset_shard(data), epochs=4, initial_epoch=epoch, callbacks=[KerasReportCallback()], verbose=0)


if __name__ == "__main__":
    result = TensorflowTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="keras", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    ).fit()
    print(result.metrics)
