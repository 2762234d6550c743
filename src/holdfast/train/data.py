"""A worker's part of an ordinary dataset: every world_size-th item, as many for each rank, so that no rank of a
collective is left waiting for one that has run out. What does not divide evenly at the end is left out."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.data.batch_iterables import Repeatable

TRAIN_DATASET_KEY = "train"


class Whole:
    """Marks a dataset that every worker gets in full."""

    def __init__(self, data: Any) -> None:
        self.data = data


class Streamed:
    """A dataset of ``holdfast.data``, with the settings that it had in the driver."""

    def __init__(self, dataset: Any, is_split: bool, execution_options: Any) -> None:
        from holdfast.data import DataContext

        self._context = DataContext.get_current().copy()
        own = dataset.context.copy()
        if execution_options is not None:
            own.execution_options = execution_options
        self._plan, self._own, self._is_split = dataset._plan, own, is_split
        self._shard: Any = None  # one for each worker: it counts epochs

    def shard(self, rank: int, world_size: int) -> Any:
        if self._shard is None:
            self._shard = self._made(rank, world_size)
        return self._shard

    @property
    def asked_for(self) -> Any:
        """The shard, once the train function has asked for it."""
        return self._shard

    def _made(self, rank: int, world_size: int) -> Any:
        from holdfast.data import DataContext, DataIterator
        from holdfast.data.shard_steps import ShardWorld

        DataContext._set_current(self._context)
        world = ShardWorld(rank, world_size) if self._is_split else ShardWorld()
        return DataIterator(self._plan, world, self._own, _device_here)


class Configuration:
    """The ``configure`` of a user's ``DataConfig``, which each worker calls to get the shards of its world."""

    def __init__(self, config: Any, datasets: Mapping[str, Any]) -> None:
        from holdfast.data import DataContext

        strange = [name for name, data in datasets.items() if not is_dataset(data)]
        if strange:
            raise TypeError(
                f"dataset {strange[0]!r} is a {type(datasets[strange[0]]).__name__}: {type(config).__name__} has a "
                "configure() of its own, so pass only datasets of holdfast.data, or only datasets of Ray Data"
            )
        self._config, self._datasets = config, dict(datasets)
        self._context = DataContext.get_current().copy()
        self._made: Mapping[str, Any] | None = None  # of this worker

    def asked_for(self, name: str) -> Any:
        return (self._made or {}).get(name)

    def shard(self, name: str, rank: int, world_size: int) -> Any:
        if self._made is None:
            from holdfast.data import DataContext

            DataContext._set_current(self._context)
            self._made = configured(self._config, self._datasets, world_size, None)[rank]
        if name not in self._made:
            raise KeyError(f"{type(self._config).__name__}.configure gave rank {rank} no dataset {name!r}")
        found = self._made[name]
        if is_shard(found):
            found._device = _device_here
        return found


def configured(config: Any, datasets: Mapping[str, Any], world_size: int, nodes: Any) -> list[Mapping[str, Any]]:
    """Check what ``configure`` returned: the same that Ray requires."""
    found = config.configure(datasets, world_size, None, nodes)
    if not isinstance(found, list) or len(found) != world_size or not all(isinstance(own, Mapping) for own in found):
        raise TypeError(
            f"{type(config).__name__}.configure returned {found!r:.200}: it must return a list, with a dict of "
            f"iterators for each of the {world_size} workers"
        )
    return found


class Configured(Streamed):
    """A dataset for which a ``Configuration`` is asked."""

    def __init__(self, name: str, source: Configuration) -> None:
        self._name, self._source = name, source

    @property
    def asked_for(self) -> Any:
        return self._source.asked_for(self._name)

    def shard(self, rank: int, world_size: int) -> Any:
        return self._source.shard(self._name, rank, world_size)


def is_dataset(data: Any) -> bool:
    """Whether this is a dataset of ``holdfast.data``, without importing that module."""
    module = sys.modules.get("holdfast.data.dataset")
    return module is not None and isinstance(data, module.Dataset)


def is_shard(part: Any) -> bool:
    """Whether this is a ``DataIterator`` of ``holdfast.data``, without importing that module."""
    module = sys.modules.get("holdfast.data.data_iterator")
    return module is not None and isinstance(part, module.DataIterator)


def shards_of(datasets: Mapping[str, Any]) -> dict[str, Any]:
    """The shards with a state (those of ``holdfast.data``) that the train function has requested, by name."""
    found = {name: data.asked_for for name, data in datasets.items() if isinstance(data, Streamed)}
    return {name: shard for name, shard in found.items() if is_shard(shard)}


def _device_here() -> Any:
    from holdfast.train.torch.loop import get_device

    return get_device()


def shard_of(name: str, data: Any, rank: int, world_size: int) -> Any:
    """What ``get_dataset_shard(name)`` returns: a ``DataShard``, or the object itself if it cannot be indexed and
    is not to be split."""
    whole = isinstance(data, Whole)
    data = data.data if isinstance(data, Whole) else data
    indexable = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if not indexable and callable(data):
        data = data()
        indexable = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if indexable:
        return DataShard(data, 0, 1) if whole else DataShard(data, rank, world_size)
    if whole:
        return data
    raise TypeError(
        f"dataset {name!r} is a {type(data).__name__}, which has no length and no indexing, so it cannot be split "
        "among workers. Pass a sequence or a map-style torch Dataset, or give it whole to each worker: "
        "DataConfig(datasets_to_split=[...]) without its name"
    )


class DataShard:
    """This worker's part of a dataset. Iterate over it for single items, or use ``iter_batches`` and
    ``iter_torch_batches``. You can iterate over it more than once.
    """

    def __init__(self, data: Any, rank: int, world_size: int) -> None:
        self._data = data
        self._rank = rank
        self._world_size = world_size

    def __len__(self) -> int:
        return len(self._data) // self._world_size

    def __iter__(self) -> Iterator[Any]:
        return (self._item(i) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"DataShard({type(self._data).__name__}, {len(self)} items, rank {self._rank} of {self._world_size})"

    def _item(self, i: int) -> Any:
        return self._data[i * self._world_size + self._rank]

    def iter_batches(
        self,
        *,
        batch_size: int | None = 256,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[list[Any]]:
        """Yield lists of ``batch_size`` items (None: all in one). Any ``local_shuffle_buffer_size`` shuffles the whole
        shard.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"iter_batches(batch_size={batch_size!r}): must be at least 1, or None for one batch")

        def batches() -> Iterator[list[Any]]:
            order = list(range(len(self))) if local_shuffle_buffer_size else range(len(self))
            if isinstance(order, list):
                random.Random(local_shuffle_seed).shuffle(order)
            size = batch_size or max(1, len(order))
            for start in range(0, len(order), size):
                part = order[start : start + size]
                if len(part) == size or not drop_last:
                    yield [self._item(i) for i in part]

        return Repeatable(batches)

    def iter_torch_batches(
        self,
        *,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Yield batches as tensors. Items are stacked as a torch DataLoader stacks them, cast to ``dtypes`` (one dtype,
        or one for each column of dict items), and moved to ``device`` ("auto" is the worker's).
        """
        from holdfast.data.tensors import to_device, to_dtypes, torch_collate
        from holdfast.train.torch.loop import get_device

        lists = self.iter_batches(
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )

        def batches() -> Iterator[Any]:
            target = get_device() if device == "auto" else device
            for items in lists:
                batch = (collate_fn or torch_collate)(items)
                yield to_device(to_dtypes(batch, dtypes), target)

        return Repeatable(batches)
