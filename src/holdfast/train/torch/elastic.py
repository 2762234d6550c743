"""``ElasticLoader``: what ``prepare_data_loader`` returns. It knows how much of the epoch was consumed, as a state that
is the same on all ranks and that workers of any number can resume from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from holdfast.train.checks import warn_once
from holdfast.train.torch.order import derive
from holdfast.train.torch.sampler import ElasticSampler
from holdfast.train.torch.shares import SharePart
from holdfast.train.torch.stream import ElasticStream

_KEYS = ("epoch", "consumed", "samples", "seed", "shuffle", "global_batch_size")


class ElasticLoader(DataLoader):  # type: ignore[misc]
    """A data loader over a part of every global batch. All that is not here is the inner loader's.

    ``weight``: what to multiply the mean loss of the current batch by, where shares are uneven or gradients accumulate.
    ``ends_step``: whether the current batch is the last that this rank has of its global batch.
    """

    def __init__(self, loader: Any, source: ElasticSampler | ElasticStream, original: Any, keep_batch: bool) -> None:
        self._loader = loader
        self._source = source
        self._keep_batch = keep_batch  # keep the global batch size of the saved state
        self.weight = 1.0
        self.ends_step = True
        self._before = (0, 0)  # where the cursor was before the current batch
        self.batch_size, self.drop_last = original.batch_size, original.drop_last
        self.collate_fn, self.generator = original.collate_fn, original.generator
        self.dataset, self.sampler = original.dataset, source

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def epoch(self) -> int:
        """The epoch that is iterated, or will be next."""
        return self._source.cursor.epoch

    @property
    def consumed(self) -> int:
        """How many samples of the epoch all ranks together have consumed, in whole global batches."""
        return self._source.cursor.consumed

    @property
    def global_batch_size(self) -> int:
        return self._source.cut.batch

    def set_epoch(self, epoch: int) -> None:
        """The epoch to iterate next, from its start; from the loaded state on if that is within this epoch."""
        self._source.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where training is in its data, after the batch that it has at the moment: small and plain, the same on all
        ranks. Once an epoch has ended, the start of the next one."""
        source = self._source
        values = (self.epoch, self.consumed, source.samples, source.seed, source.shuffle, self.global_batch_size)
        return dict(zip(_KEYS, values, strict=True))

    def state_before_batch(self) -> dict[str, Any]:
        """Where training was before the batch that it has at the moment: to take that batch again."""
        epoch, consumed = self._before
        return {**self.state_dict(), "epoch": epoch, "consumed": consumed}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume where the state was saved, with any number of workers."""
        missing = [key for key in _KEYS if key not in state_dict]
        if missing:
            raise ValueError(
                f"load_state_dict(): no {', '.join(missing)} in it; pass what state_dict() of a loader from "
                "prepare_data_loader() returned"
            )
        self._source.check(state_dict)
        self._source.seed = state_dict["seed"]
        self._source.cursor.load(state_dict["epoch"], state_dict["consumed"])
        if self._keep_batch:
            self._source.batch = state_dict["global_batch_size"]

    def __iter__(self) -> Iterator[Any]:
        source = self._source
        source.cursor.begin()
        if self.global_batch_size < source.num_replicas and source.rank == 0:
            warn_once(
                "global batch below world size",
                f"a global batch of {self.global_batch_size} is less than one sample for each of the "
                f"{source.num_replicas} workers: some repeat another's sample; multiply the loss by loader.weight, "
                "which is 0 for these, or use a larger batch",
            )
        if self.generator is None and self._loader.generator is not None:
            # The loader seeds its workers from here, so that it takes nothing from the generator that training uses.
            key = (source.seed, self.epoch, self.consumed, source.rank)
            self._loader.generator.manual_seed(derive("loader", *key) >> 1)
        return self._consumed(source.labelled(iter(self._loader)))

    def _consumed(self, batches: Iterator[tuple[SharePart, Any]]) -> Iterator[Any]:
        source = self._source
        for part, batch in batches:
            self.weight = part.weight(source.rank, source.num_replicas)
            self.ends_step = part.is_last
            self._before = (source.cursor.epoch, source.cursor.consumed)
            if part.is_last:
                source.cursor.consumed = part.end
            yield batch
        source.cursor.finish()
