"""Batches that the actor of a Ray node sends: Ray Data runs there, and tensors are made in the worker."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.data.batch_iterables import Repeatable, format_for
from holdfast.errors import HoldfastError
from holdfast.objects import actor_client


class LostSplitError(Exception):
    """The process that splits the dataset never started."""


class ActorBatches:
    """The ways to iterate of Ray's ``Dataset`` and ``DataIterator``."""

    def _received(self, how: str, options: dict[str, Any]) -> Iterator[Any]:
        """The items of the method with this name, in the actor."""
        raise NotImplementedError

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """As Ray's: dicts of numpy arrays, or what ``batch_format`` names ("numpy", "pandas", "pyarrow")."""
        options = {
            "prefetch_batches": prefetch_batches,
            "batch_size": batch_size,
            "batch_format": batch_format,
            "drop_last": drop_last,
            "local_shuffle_buffer_size": local_shuffle_buffer_size,
            "local_shuffle_seed": local_shuffle_seed,
        }
        return Repeatable(lambda: self._received("iter_batches", options))

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        return Repeatable(lambda: (row for rows in self._received("iter_rows", {}) for row in rows))

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """As Ray's: dicts of tensors, cast to ``dtypes``, or what ``collate_fn`` makes of a dict of numpy arrays; on
        ``device`` ("auto": the worker's)."""
        from holdfast.data.tensors import tensor_maker, to_device
        from holdfast.train.torch.loop import get_device

        tensors = tensor_maker(dtypes, collate_fn, pin_memory)
        arrays = self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format=format_for(collate_fn),
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )

        def batches() -> Iterator[Any]:
            target = get_device() if device == "auto" else device
            for batch in arrays:
                made = tensors(batch)
                yield made if target is None else to_device(made, target, non_blocking=pin_memory)

        return Repeatable(batches)

    def iter_tf_batches(self, *, dtypes: Any = None, **options: Any) -> Iterable[Any]:
        """As Ray's: dicts of TensorFlow's tensors."""
        from holdfast.data.tensorflow_batches import tf_columns

        arrays = self.iter_batches(**options, batch_format="numpy")
        return Repeatable(lambda: (tf_columns(batch, dtypes) for batch in arrays))

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        """As Ray's: a ``tf.data.Dataset`` of (features, labels)."""
        from holdfast.data.tensorflow_batches import tf_dataset

        return tf_dataset(self, feature_columns, label_columns, **options)


def received(what: str, data: bytes, how: str, options: dict[str, Any]) -> Iterator[Any]:
    """One pass over the data. ``data`` is the pickled object of Ray, and ``what`` names it in errors."""
    with actor_client.knock() as conversation:
        conversation.send(("batches", data, how, options))
        while True:
            try:
                sizes = conversation.recv()
                if sizes is None:
                    return
                if sizes == actor_client.LOST:
                    raise LostSplitError
                if isinstance(sizes, str):
                    raise HoldfastError(f"{what}: {sizes}")
                body = conversation.recv_bytes()
                buffers = [bytearray(size) for size in sizes]
                for buffer in buffers:
                    conversation.recv_bytes_into(buffer)
            except EOFError as error:
                raise HoldfastError(f"{what}: the node's actor has exited") from error
            yield pickle.loads(body, buffers=buffers)
