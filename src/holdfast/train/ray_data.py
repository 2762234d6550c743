"""A worker's part of a Ray Data dataset, as Ray's ``DataIterator`` is one: the actor of the node runs that, and sends
the batches here.

Ray Data splits by blocks as they come, so which rows a rank gets, and in which order, may differ from run to run. Each
iteration is one pass over the shard; after a restart it begins again, with the world as it is then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.objects import actor_client
from holdfast.train.actor_batches import ActorBatches, LostSplitError, received
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


class RayShard(ActorBatches):
    def __init__(self, name: str, iterator: bytes) -> None:
        self._name, self._iterator = name, iterator

    def __repr__(self) -> str:
        return f"RayShard({self._name})"

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
        """The process that splits the dataset may be lost before it has started, with a node whose loss Ray has not
        noticed yet: then the dataset is split again, for all ranks."""
        for _ in range(_MOST_SPLITS):
            try:
                yield from received(f"dataset {self._name!r}", self._iterator, how, options)
                return
            except LostSplitError:
                self._iterator = current("a dataset of Ray Data").request("shard", (self._name, self._iterator))
        raise HoldfastError(
            f"dataset {self._name!r}: the process that splits it was lost {_MOST_SPLITS} times before it started"
        )
