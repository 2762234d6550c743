"""Ray Data for workers, which are not Ray processes.

The driver splits a dataset again for each attempt. The actor of a node runs the iterators of its ranks, with everything
that Ray Data can do, and sends the batches to the workers. It also calls the methods of datasets that are in a config.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from holdfast.engine.ray.connection import connected_ray
from holdfast.engine.ray.ray_nodes import look
from holdfast.objects.actor_client import LOST, SentByActor

_ROWS_AT_ONCE = 256
_NEVER_BEGAN = ("class_name: SplitCoordinator", "The actor never ran")  # so Ray says it, and no rank has got anything


class Splits:
    """What each rank gets of the datasets of a driver. ``whole`` are those that are not split; ``custom`` is
    the user's way to split all of them."""

    def __init__(
        self,
        datasets: Mapping[str, Any],
        whole: Sequence[str],
        execution_options: Any,
        by_locality: bool,
        custom: Callable[[Mapping[str, Any], int, list[str] | None], list[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._datasets, self._whole = datasets, whole
        self._options, self._by_locality = execution_options, by_locality
        self._custom = custom
        self._attempt_number = 0
        self._made: dict[str, list[bytes]] = {}  # by rank
        self._coordinators: list[Any] = []

    def shard(self, name: str, attempt_number: int, rank: int, nodes: Sequence[str], lost: bytes | None) -> bytes:
        """The pickled iterator of a rank of a group; ``nodes`` are our names of those that its ranks are on. The first
        rank that has lost its iterator has the dataset split again, for all of them."""
        if attempt_number != self._attempt_number:
            self.close()
            self._attempt_number = attempt_number
        if name not in self._made or self._made[name][rank] == lost:
            split = self._split(name, nodes)
            self._coordinators += [split[0]._coord_actor] if hasattr(split[0], "_coord_actor") else []
            self._made[name] = [connected_ray().cloudpickle.dumps(iterator) for iterator in split]
        return self._made[name][rank]

    def close(self) -> None:
        """The attempt has ended: batches that are still on their way to it are dropped."""
        for coordinator in self._coordinators:
            connected_ray().kill(coordinator)
        self._made, self._coordinators = {}, []

    def _split(self, name: str, nodes: Sequence[str]) -> list[Any]:
        if self._custom is not None:
            datasets = {each: data.copy(data) for each, data in self._datasets.items()}
            return [own[name] for own in self._custom(datasets, len(nodes), _ids_of(nodes))]
        dataset = self._datasets[name]
        dataset = dataset.copy(dataset)
        options = self._options.get(name) if isinstance(self._options, Mapping) else self._options
        if options is not None:
            dataset.context.execution_options = options
        if name in self._whole:
            return [dataset.iterator()] * len(nodes)
        hints = _ids_of(nodes) if self._by_locality else None
        split: list[Any] = dataset.streaming_split(len(nodes), equal=True, locality_hints=hints)
        return split


def _ids_of(nodes: Sequence[str]) -> list[str] | None:
    """Ray's, if all are known."""
    ids = {node.name: node.id for node in look().values()}
    found = [ids.get(node, "") for node in nodes]
    return found if all(found) else None


def serve_batches(conversation: Connection, iterator: bytes, how: str, options: dict[str, Any]) -> None:
    """In the actor: send the items of an iterator until the worker has all of them or has exited. ``how`` names its
    method."""
    for part in _told(iterator, how, options):
        if isinstance(part, _End):
            never_began = all(words in (part.error or "") for words in _NEVER_BEGAN)
            conversation.send(LOST if never_began else part.error)
            return
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(part, protocol=5, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
        conversation.send([buffer.nbytes for buffer in raw])
        conversation.send_bytes(body)
        for buffer in raw:
            conversation.send_bytes(buffer)


@dataclass(frozen=True)
class _End:
    error: str | None  # what went wrong, if something did


def _told(iterator: bytes, how: str, options: dict[str, Any]) -> Iterator[Any]:
    """The items of the iterator, and how it ended: the user's data may fail in any way."""
    try:
        yield from _parts(connected_ray().cloudpickle.loads(iterator), how, options)
    except Exception as error:
        yield _End(f"{type(error).__name__}: {error}")
    else:
        yield _End(None)


def _parts(iterator: Any, how: str, options: dict[str, Any]) -> Iterable[Any]:
    if how == "iter_rows":
        return _chunks(iter(iterator.iter_rows()))
    if how == "iter_batches":
        batches: Iterable[Any] = iterator.iter_batches(**options)
        return batches
    if how == "call":
        return [_called(iterator, options["sent"])]
    return [getattr(iterator, how)(**options)]


def _called(data: Any, sent: bytes) -> Any:
    """The return value of a dataset's method, for a worker that sent its name and arguments."""
    name, args, options = cloudpickle.loads(sent)
    found = getattr(data, name)
    return _sendable(found(*args, **options) if callable(found) else found)


def _sendable(value: Any) -> Any:
    """Datasets, their iterators and groups stay with Ray; a worker can ask for more of them."""
    import ray.data.grouped_data

    if isinstance(value, (ray.data.Dataset, ray.data.DataIterator, ray.data.grouped_data.GroupedData)):
        return SentByActor(ray.cloudpickle.dumps(value))
    if type(value) in (list, tuple):
        return type(value)(_sendable(item) for item in value)
    return value


def _chunks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        yield chunk
