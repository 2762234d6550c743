"""``ElasticSampler``: each rank's share of every global batch, in an order that no world size changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch.distributed as dist
from torch.utils.data import DistributedSampler, Sampler

from holdfast.train.checks import check_bool, check_int
from holdfast.train.torch.cursor import Cursor
from holdfast.train.torch.order import Order
from holdfast.train.torch.rng import SeededDataset
from holdfast.train.torch.shares import Cut, SharePart
from holdfast.worker import session as sessions

_LOOKED_UP_AT_ONCE = 4096


class ElasticSampler(DistributedSampler):  # type: ignore[misc]
    """A sampler for elastic runs: one optimizer step uses ``global_batch_size`` samples, whatever the number of
    workers.

    Use it as ``DataLoader(dataset, batch_size, sampler=ElasticSampler(dataset, global_batch_size))``, which
    ``prepare_data_loader`` then splits. A worker takes at most the loader's ``batch_size`` samples at a time (see
    ``loader.ends_step``). With ``global_batch_size=None``, the global batch is ``batch_size`` from each worker that the
    run started with, and a worker takes its whole share at a time. ``num_replicas`` and ``rank`` are those of the
    training, unless given.
    """

    def __init__(
        self,
        dataset: Any,
        global_batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        if global_batch_size is not None:
            check_int("ElasticSampler(global_batch_size", global_batch_size, least=1, note=", or None")
        check_bool("ElasticSampler(shuffle", shuffle)
        check_int("ElasticSampler(seed", seed, least=0)
        own_rank, world_size = place()
        super().__init__(
            dataset,
            num_replicas=world_size if num_replicas is None else num_replicas,
            rank=own_rank if rank is None else rank,
            shuffle=shuffle,
            seed=seed,
        )
        if rank is None:
            follow_rank(self)
        self.global_batch_size = global_batch_size
        self.cursor = Cursor()
        self.batch = global_batch_size
        self.most: int | None = None

    @property
    def epoch(self) -> int:
        return self.cursor.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        """The base class sets it before there is a cursor, which begins at the same epoch."""
        if "cursor" in vars(self):
            self.cursor.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        self.cursor.set_epoch(epoch)

    @property
    def samples(self) -> int:
        return len(self.dataset)

    @property
    def cut(self) -> Cut:
        return Cut(self.batch or self.num_replicas, self.drop_last, self.num_replicas, self.most)

    def __len__(self) -> int:
        """How many samples this rank has in a whole epoch."""
        return self.cut.count_samples(self.samples, self.rank)

    def __iter__(self) -> Iterator[int]:
        return (index for indices in self.batches() for index in indices)

    def batches(self) -> Iterator[list[int]]:
        """This rank's indices from the cursor on, a list for each part. The epoch and the cursor are read immediately,
        the indices are looked up on demand."""
        order = Order(self.samples, self.seed, self.epoch, self.shuffle)
        parts = self.cut.parts(self.samples, self.cursor.consumed)
        return _looked_up(order, (part.positions(self.rank, self.num_replicas) for part in parts))

    def labelled(self, batches: Iterator[Any]) -> Iterator[tuple[SharePart, Any]]:
        """The batches that the loader fetches from here, each with the part that it is."""
        parts = self.cut.parts(self.samples, self.cursor.consumed)
        return ((part, batch) for batch, part in zip(batches, parts, strict=True))

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise if the state cannot be resumed: the order would differ."""
        for name, now in (("samples", self.samples), ("shuffle", self.shuffle)):
            if state[name] != now:
                raise ValueError(
                    f"load_state_dict(): it was saved with {name}={state[name]!r}, and now it is {now!r}, so the "
                    f"samples are in another order. Use the same dataset and options, or start a new epoch with "
                    f"set_epoch() instead of loading the loader's state"
                )


def _looked_up(order: Order, ranges: Iterator[range]) -> Iterator[list[int]]:
    """Many positions in one go: looking up one batch costs almost as much as looking up hundreds."""
    waiting: list[range] = []
    size = 0
    for positions in ranges:
        waiting.append(positions)
        size += len(positions)
        if size >= _LOOKED_UP_AT_ONCE:
            yield from _lists(order, waiting)
            waiting, size = [], 0
    if waiting:
        yield from _lists(order, waiting)


def _lists(order: Order, ranges: list[range]) -> Iterator[list[int]]:
    indices = order.at(np.concatenate([np.arange(r.start, r.stop, r.step) for r in ranges])).tolist()
    begin = 0
    for positions in ranges:
        yield indices[begin : begin + len(positions)]
        begin += len(positions)


class PartSampler(Sampler):  # type: ignore[misc]
    """What the data loader draws from: what to fetch for each part. A ``SeededDataset`` gets the epoch with each index,
    because loader workers that persist across epochs learn it in no other way."""

    def __init__(self, sampler: ElasticSampler, batched: bool) -> None:
        self.sampler = sampler
        self.batched = batched

    def __len__(self) -> int:
        return self.sampler.cut.count_parts(self.sampler.samples)

    def __iter__(self) -> Iterator[Any]:
        batches: Iterator[Any] = self.sampler.batches()
        if isinstance(self.sampler.dataset, SeededDataset):
            epoch = self.sampler.epoch
            batches = ([(epoch, index) for index in indices] for indices in batches)
        return batches if self.batched else (indices[0] for indices in batches)


def follow_rank(source: Any) -> None:
    """A standby worker learns its rank later: have the source use it then."""
    with contextlib.suppress(RuntimeError):  # not in a worker
        sessions.current().place.follow(source)


def place() -> tuple[int, int]:
    """Rank and world size of this process, in a Holdfast worker or in another process group."""
    try:
        session = sessions.current()
    except RuntimeError:
        return (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)
    return session.early_rank, session.world_size
