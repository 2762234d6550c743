"""A worker's part of a Ray Data dataset, as Ray's ``DataIterator`` is one: the actor of the node runs that, and sends
the batches here.

Ray Data splits by blocks as they come, so which rows a rank gets, and in which order, may differ from run to run. Each
iteration is one pass over the shard; after a restart it begins again, with the world as it is then.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.data.batch_iterables import Repeatable, format_for
from holdfast.errors import HoldfastError
from holdfast.objects import actor_client
from holdfast.worker.session import Session, current

_MOST_SPLITS = 5  # of one pass


class RayData:
    """Marks, for workers, a dataset that only the driver has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def shard(self, session: Session) -> Any:
        iterator = session.request("shard", (self.name, None))
        if actor_client.find() is not None:
            return RayShard(self.name, iterator)
        ray = sys.modules.get("ray")
        if ray is not None and ray.is_initialized():  # the train function runs in the script's own process
            return ray.cloudpickle.loads(iterator)
        raise HoldfastError(f'dataset {self.name!r} is of Ray Data: workers can read it with RunConfig(engine="ray")')


def is_ray_data(data: Any) -> bool:
    """Without importing Ray: who has such a dataset has done so."""
    module = sys.modules.get("ray.data")
    return module is not None and isinstance(data, module.Dataset)


class _LostError(Exception):
    """What splits the dataset never began."""


class RayShard:
    def __init__(self, name: str, iterator: bytes) -> None:
        self._name, self._iterator = name, iterator

    def __repr__(self) -> str:
        return f"RayShard({self._name})"

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

    def materialize(self) -> Any:
        """One pass over the shard, in this worker's memory, as a dataset of ``holdfast.data``."""
        from holdfast.data import from_arrow

        return from_arrow(list(self.iter_batches(batch_size=None, batch_format="pyarrow")))

    def get_context(self) -> Any:
        """The driver's ``ray.data.DataContext``, as it was for this dataset."""
        return next(self._received("get_context", {}))

    def schema(self) -> Any:
        return next(self._received("schema", {}))

    def stats(self) -> str:
        return str(next(self._received("stats", {})))

    def _received(self, how: str, options: dict[str, Any]) -> Iterator[Any]:
        """What splits the dataset may be lost before it has begun, with a node of which Ray has not noticed yet that it
        is gone: then the dataset is split again, for all ranks."""
        for _ in range(_MOST_SPLITS):
            try:
                yield from self._pass(how, options)
                return
            except _LostError:
                self._iterator = current("a dataset of Ray Data").request("shard", (self._name, self._iterator))
        raise HoldfastError(f"dataset {self._name!r}: what splits it was lost {_MOST_SPLITS} times before it had begun")

    def _pass(self, how: str, options: dict[str, Any]) -> Iterator[Any]:
        with actor_client.knock() as conversation:
            conversation.send(("batches", self._iterator, how, options))
            while True:
                try:
                    sizes = conversation.recv()
                    if sizes is None:
                        return
                    if sizes == actor_client.LOST:
                        raise _LostError
                    if isinstance(sizes, str):
                        raise HoldfastError(f"dataset {self._name!r}: {sizes}")
                    body = conversation.recv_bytes()
                    buffers = [bytearray(size) for size in sizes]
                    for buffer in buffers:
                        conversation.recv_bytes_into(buffer)
                except EOFError as error:
                    raise HoldfastError(f"dataset {self._name!r}: the node's actor is gone") from error
                yield pickle.loads(body, buffers=buffers)
