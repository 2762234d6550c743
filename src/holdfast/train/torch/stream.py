"""``ElasticStream``: an iterable dataset, split among ranks by position.

A stream can be split exactly only by reading it: every process that loads data reads all of it, keeps a global batch at
a time, and takes its own samples. To resume within an epoch, consumed samples are skipped by the dataset's own ``skip``
if it has one, and read again if not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from holdfast.train.checks import check_int
from holdfast.train.torch.cursor import Cursor
from holdfast.train.torch.sampler import follow_rank, place
from holdfast.train.torch.shares import Cut, SharePart


class ElasticStream(IterableDataset):  # type: ignore[misc]
    """An iterable dataset for elastic runs, used as ``DataLoader(ElasticStream(dataset), batch_size)``.

    The dataset must yield the whole epoch, in the same order in every process: it must not split itself by rank or by
    loader worker. If it has ``set_epoch(epoch)``, that is called. ``global_batch_size`` is as for ``ElasticSampler``.
    """

    seed, shuffle, samples = 0, False, None

    def __init__(self, dataset: Any, global_batch_size: int | None = None) -> None:
        if global_batch_size is not None:
            check_int("ElasticStream(global_batch_size", global_batch_size, least=1, note=", or None")
        self.dataset = dataset
        self.global_batch_size = global_batch_size
        self.rank, self.num_replicas = place()
        follow_rank(self)
        self.cursor = Cursor()
        self.batch = global_batch_size
        self.most: int | None = None
        self.drop_last = False

    @property
    def cut(self) -> Cut:
        return Cut(self.batch or self.num_replicas, self.drop_last, self.num_replicas, self.most)

    def set_epoch(self, epoch: int) -> None:
        self.cursor.set_epoch(epoch)

    def check(self, state: Mapping[str, Any]) -> None:
        if state["samples"] is not None:
            raise ValueError(
                "load_state_dict(): this state belongs to a dataset with a length, not to an ElasticStream; load what "
                "state_dict() of this loader returned"
            )

    def labelled(self, batches: Iterator[Any]) -> Iterator[tuple[SharePart, Any]]:
        return batches

    def __iter__(self) -> Iterator[Any]:
        """The samples of the epoch from the cursor on, those of all ranks."""
        dataset, consumed = self.dataset, self.cursor.consumed
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(self.cursor.epoch)
        if consumed and hasattr(dataset, "skip"):
            return iter(dataset.skip(consumed))
        return islice(dataset, consumed, None)


class PartReader(IterableDataset):  # type: ignore[misc]
    """What the data loader iterates: this rank's samples of each part. Loader workers take the parts in turn, in the
    order in which the loader asks them."""

    def __init__(self, stream: ElasticStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[tuple[SharePart, list[Any]]]:
        stream, cut, worker = self.stream, self.stream.cut, get_worker_info()
        turn, turns = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        samples, start, passed = iter(stream), stream.cursor.consumed, 0
        while batch := list(islice(samples, cut.batch)):
            if len(batch) < cut.batch and cut.drop_last:
                return
            for part in cut.parts_of(start, len(batch)):
                if passed % turns == turn:
                    own = part.positions(stream.rank, stream.num_replicas)
                    yield part, [batch[position - start] for position in own]
                passed += 1
            start += len(batch)


class PartCollate:
    """Collates the samples of a part, and keeps the part with them."""

    def __init__(self, collate: Callable[[Any], Any], batched: bool) -> None:
        self.collate = collate
        self.batched = batched

    def __call__(self, item: tuple[SharePart, list[Any]]) -> tuple[SharePart, Any]:
        part, samples = item
        return part, self.collate(samples if self.batched else samples[0])
