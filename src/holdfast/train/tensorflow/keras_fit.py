"""``model.fit`` of Keras 3 inside a ``MultiWorkerMirroredStrategy``, where plain Keras raises an error
(keras-team/keras#20585).

Before the first epoch Keras builds the model from one batch, and reduces that batch, a tuple of tensors, over all
replicas, which this strategy cannot do. Only its shapes count: the data set knows them, else the batch of this replica
has them. After each step, Keras takes the mean of the metrics over their first axis, which they do not have.
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
        batch = _shapes_of(iterator)
        if batch is None:
            batch = next(next(iter(iterator))[2])
            batch = tf.nest.map_structure(lambda value: getattr(value, "values", (value,))[0], batch)
        build(self, data_batch=batch)

    def reduce_scalars(values: Any, strategy: Any, reduction: str) -> Any:
        import tensorflow as tf

        if reduction not in ("auto", "mean") or not _spans_workers(strategy):
            return reduce(values, strategy, reduction)
        return tf.nest.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build_from_own_replica
    trainer.reduce_per_replica = reduce_scalars
    trainer._of_holdfast = True


def _shapes_of(iterator: Any) -> Any:
    """What the batches look like, without reading one: a data set that is read starts its input once more. None if it
    is not known before."""
    import tensorflow as tf

    found = getattr(getattr(iterator, "_distributed_dataset", None), "element_spec", None)
    specs = tf.nest.flatten(found)
    known = all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in specs)
    return found if known else None


def _spans_workers(strategy: Any) -> bool:
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
