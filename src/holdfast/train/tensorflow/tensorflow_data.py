"""Functions for a train function and its part of the data."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """Return the dataset with prefetching, and with an option that keeps TensorFlow from splitting it again: it is
    already this worker's part."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf.data.AUTOTUNE)
