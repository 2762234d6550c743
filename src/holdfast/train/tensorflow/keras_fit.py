"""``model.fit`` of Keras 3 inside a ``MultiWorkerMirroredStrategy``, where plain Keras raises an error
(keras-team/keras#20585).

Before the first epoch Keras builds the model from one batch, and reduces that batch, a tuple of tensors, over all
replicas, which this strategy cannot do. The batch of this replica is good enough, because only its shapes count. After
each step, Keras takes the mean of the metrics over their first axis, which they do not have.
"""

from __future__ import annotations

from typing import Any


def let_keras_fit() -> None:
    """Once, in a worker. Does nothing if Keras does not have these functions."""
    try:
        from keras.src.backend.tensorflow import trainer
    except ImportError:
        return
    build = getattr(trainer.TensorFlowTrainer, "_maybe_symbolic_build", None)
    reduce = getattr(trainer, "reduce_per_replica", None)
    if build is None or reduce is None or hasattr(trainer, "_of_holdfast"):
        return

    def build_from_own_replica(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        import tensorflow as tf

        if iterator is None or not _spans_workers(self.distribute_strategy):
            build(self, iterator=iterator, data_batch=data_batch)
            return
        batch = next(next(iter(iterator))[2])
        build(self, data_batch=tf.nest.map_structure(lambda value: getattr(value, "values", (value,))[0], batch))

    def reduce_scalars(values: Any, strategy: Any, reduction: str) -> Any:
        import tensorflow as tf

        if reduction not in ("auto", "mean") or not _spans_workers(strategy):
            return reduce(values, strategy, reduction)
        return tf.nest.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build_from_own_replica
    trainer.reduce_per_replica = reduce_scalars
    trainer._of_holdfast = True


def _spans_workers(strategy: Any) -> bool:
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
