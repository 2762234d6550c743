"""Batches as TensorFlow's: tensors, and a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def tf_columns(batch: Mapping[str, Any], dtypes: Any = None) -> dict[str, Any]:
    def dtype(name: str) -> Any:
        return dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes

    return {name: tf.convert_to_tensor(_plain(array), dtype=dtype(name)) for name, array in batch.items()}


def tf_dataset(
    data: Any,
    feature_columns: Any,
    label_columns: Any,
    *,
    additional_columns: Any = None,
    prefetch_batches: int = 1,
    batch_size: int = 1,
    drop_last: bool = False,
    local_shuffle_buffer_size: int | None = None,
    local_shuffle_seed: int | None = None,
    feature_type_spec: Any = None,
    label_type_spec: Any = None,
    additional_type_spec: Any = None,
) -> Any:
    """``data`` is a ``DataIterator``, or has its methods. A column gives a tensor, a list of columns a dict of them."""
    columns = [feature_columns, label_columns, *([] if additional_columns is None else [additional_columns])]
    given = [feature_type_spec, label_type_spec, additional_type_spec]
    schema = data.schema()
    specs = tuple(spec or _spec(schema, names) for names, spec in zip(columns, given, strict=False))

    def batches() -> Iterator[Any]:
        for batch in data.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format="numpy",
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        ):
            yield tuple(_chosen(batch, names) for names in columns)

    made = tf.data.Dataset.from_generator(batches, output_signature=specs)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # it is a shard
    return made.with_options(options)


def _chosen(batch: Mapping[str, Any], names: Any) -> Any:
    return _plain(batch[names]) if isinstance(names, str) else {name: _plain(batch[name]) for name in names}


def _plain(array: Any) -> Any:
    return np.stack(list(array)) if array.dtype.hasobject and isinstance(array[0], np.ndarray) else array


def _spec(schema: Any, names: Any) -> Any:
    import pyarrow as pa

    def one(name: str) -> Any:
        if name not in schema.names:
            raise ValueError(f"to_tf: there is no column {name!r}; the dataset has {', '.join(schema.names)}")
        kind = schema.base_schema.field(name).type
        if isinstance(kind, pa.BaseExtensionType) and hasattr(kind, "shape"):  # tensors: ours, or those of Ray Data
            values = kind.value_type if hasattr(kind, "value_type") else kind.scalar_type  # before Ray 2.60
            return tf.TensorSpec((None, *kind.shape), values.to_pandas_dtype(), name)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return tf.TensorSpec((None, None), kind.value_type.to_pandas_dtype(), name)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)
        return tf.TensorSpec((None,), tf.string if text else kind.to_pandas_dtype(), name)

    return one(names) if isinstance(names, str) else {name: one(name) for name in names}
