"""Datasets of Ray Data in objects that are sent to workers: in a config, in a closure, in the arguments of a function.

A worker is not a Ray process. It gets a ``RayDataset`` instead of each, with the methods of Ray's ``Dataset``, which
the actor of the node calls.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import cloudpickle

from holdfast.errors import HoldfastError
from holdfast.objects import actor_client
from holdfast.objects.actor_client import SentByActor
from holdfast.train.actor_batches import ActorBatches, received
from holdfast.train.ray_data import is_ray_data


def pickled_for_workers(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if is_ray_data(obj):
            return ray_dataset, (sys.modules["ray"].cloudpickle.dumps(obj),)
        return super().reducer_override(obj)


def ray_dataset(pickled: bytes) -> Any:
    """The dataset itself where this process is one of Ray's, and else one that the node's actor answers for."""
    ray = sys.modules.get("ray")
    if actor_client.find() is None and ray is not None and ray.is_initialized():
        return ray.cloudpickle.loads(pickled)
    return RayDataset(pickled)


class RayDataset(ActorBatches):
    """A dataset of Ray Data, or what one of its methods returned, in a worker."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __repr__(self) -> str:
        return "RayDataset()"

    def __reduce__(self) -> Any:
        return ray_dataset, (self._pickled,)

    def __deepcopy__(self, _known: Any) -> RayDataset:
        return self  # a plan: it is never changed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: self._called(name, args, options)

    @property
    def context(self) -> Any:
        return self._called("context", (), {})

    def get_context(self) -> Any:
        """The driver's ``ray.data.DataContext``, as it was for this dataset."""
        return self.context

    def iterator(self) -> RayDataset:
        return self

    def show(self, limit: int = 20) -> None:
        for row in self.take(limit):
            print(row)

    def _called(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        sent = cloudpickle.dumps((name, args, options))
        (value,) = self._received("call", {"sent": sent})
        return _wrapped(value)

    def _received(self, how: str, options: dict[str, Any]) -> Any:
        if actor_client.find() is None:
            raise HoldfastError(
                'a dataset of Ray Data can be read with RunConfig(engine="ray"). Use holdfast.data elsewhere: it reads '
                "the same files."
            )
        return received("dataset of Ray Data", self._pickled, how, options)


def _wrapped(value: Any) -> Any:
    if isinstance(value, SentByActor):
        return RayDataset(value.pickled)
    if type(value) in (list, tuple):
        return type(value)(_wrapped(item) for item in value)
    return value
