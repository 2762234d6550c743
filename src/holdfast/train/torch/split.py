"""A loader for one rank, made from a loader for all the data: how it is split, and which loaders are not changed."""

from __future__ import annotations

import inspect
import logging
import sys
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from holdfast.train.checks import warn_once
from holdfast.train.torch.sampler import ElasticSampler, PartSampler
from holdfast.train.torch.stream import ElasticStream, PartCollate, PartReader

logger = logging.getLogger(__name__)


class Split(NamedTuple):
    """A loader of a rank's parts, and their source. ``keep_batch``: the global batch size was not set by the user but
    follows from the first world size, so a state that was saved with another one overrides it."""

    loader: DataLoader[Any]
    source: ElasticSampler | ElasticStream
    keep_batch: bool


def split_loader(loader: DataLoader[Any], rank: int, world_size: int) -> Split | None:
    """None if the loader is to stay as it is."""
    if isinstance(loader.dataset, ElasticStream):
        return _of_stream(loader, loader.dataset)
    if isinstance(loader.dataset, IterableDataset):
        if rank == 0 and world_size > 1:
            warn_once(
                "iterable dataset",
                "prepare_data_loader() cannot split an IterableDataset: each worker iterates all of it, unless it "
                "splits itself by holdfast.train.get_context().get_world_rank(); wrap it in "
                "holdfast.train.torch.ElasticStream to have it split",
            )
        return None
    if isinstance(loader.sampler, ElasticSampler):
        return _by_sampler(loader, loader.sampler)
    if isinstance(loader.sampler, DistributedSampler) or _is_kept(loader, rank, world_size):
        return None
    shuffle = not isinstance(loader.sampler, SequentialSampler)
    return _by_sampler(loader, ElasticSampler(loader.dataset, shuffle=shuffle, num_replicas=world_size, rank=rank))


def _by_sampler(loader: DataLoader[Any], sampler: ElasticSampler) -> Split:
    keep_batch = _set_batches(loader, sampler)
    options = _options(loader)
    if loader.batch_size is None:
        options |= {"batch_size": None, "sampler": PartSampler(sampler, batched=False)}
    else:
        options["batch_sampler"] = PartSampler(sampler, batched=True)
    return Split(DataLoader(**options), sampler, keep_batch)


def _set_batches(loader: DataLoader[Any], source: ElasticSampler | ElasticStream) -> bool:
    """Returns whether the global batch size is one to keep."""
    source.drop_last = loader.drop_last
    source.batch = source.global_batch_size
    if loader.batch_size is None or source.global_batch_size is not None:
        source.most = loader.batch_size or 1
        return False
    source.batch = loader.batch_size * source.num_replicas
    return True


def _is_kept(loader: DataLoader[Any], rank: int, world_size: int) -> bool:
    """Whether the loader draws in a custom way that one worker can keep. With more workers, it is replaced or
    rejected."""
    if loader.batch_size is None and loader.batch_sampler is not None:
        if world_size == 1 or isinstance(getattr(loader.batch_sampler, "sampler", None), DistributedSampler):
            return True
        raise ValueError(
            f"prepare_data_loader() cannot split a loader with a custom batch_sampler "
            f"({type(loader.batch_sampler).__name__}). Base the batch_sampler on a DistributedSampler, or pass "
            "add_dist_sampler=False and split the batches by holdfast.train.get_context().get_world_rank()"
        )
    if _is_plain(loader.sampler):
        return False
    if world_size > 1 and rank == 0:
        logger.warning(
            "prepare_data_loader() replaces the %s by a shuffle of the whole dataset; keep it with "
            "add_dist_sampler=False",
            type(loader.sampler).__name__,
        )
    return world_size == 1


def _is_plain(sampler: Any) -> bool:
    """Whether it draws each sample once: what ``DataLoader(shuffle=...)`` makes, and torchdata's loader."""
    torchdata = sys.modules.get("torchdata.stateful_dataloader.sampler")
    if isinstance(sampler, RandomSampler) or (torchdata is not None and isinstance(sampler, torchdata.RandomSampler)):
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return isinstance(sampler, SequentialSampler)


def _of_stream(loader: DataLoader[Any], stream: ElasticStream) -> Split:
    keep_batch = _set_batches(loader, stream)
    options = _options(loader)
    options["dataset"] = PartReader(stream)
    options["collate_fn"] = PartCollate(loader.collate_fn, batched=loader.batch_size is not None)
    if options.pop("persistent_workers"):
        warn_once(
            "persistent workers of a stream",
            "prepare_data_loader() starts the loader's workers again in each epoch of an ElasticStream, because they "
            "learn the epoch when they start: leave persistent_workers out",
        )
    return Split(DataLoader(**options, batch_size=None), stream, keep_batch)


def _options(loader: DataLoader[Any]) -> dict[str, Any]:
    """All that the loader was made with but its sampling, whatever options this version of torch knows."""
    sampling = ("self", "shuffle", "sampler", "batch_sampler", "batch_size", "drop_last")
    options = {
        name: getattr(loader, name)
        for name in inspect.signature(DataLoader.__init__).parameters
        if name not in sampling and hasattr(loader, name)
    }
    if options["generator"] is None:
        options["generator"] = torch.Generator()
    if not options.get("in_order", True):
        warn_once(
            "in_order",
            "prepare_data_loader() keeps batches in order, because otherwise it is not known which were consumed",
        )
        options["in_order"] = True
    return options
