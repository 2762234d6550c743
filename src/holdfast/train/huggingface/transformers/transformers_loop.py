"""What a train function does with a Transformers ``Trainer``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from holdfast.train.api import get_checkpoint
from holdfast.train.huggingface.transformers.transformers_callback import TransformersReportCallback


class _Batches(IterableDataset):  # type: ignore[misc]
    """Batches that are made already, as a data set of which each sample is a batch."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def prepare_trainer(trainer: Any) -> Any:
    """Let a ``transformers.Trainer`` take ``train_dataset`` and ``eval_dataset`` that iterate over batches, as
    ``iter_torch_batches()`` of a data set shard does, beside the data sets that it knows; returns it."""
    base = type(trainer)

    class Prepared(base):  # type: ignore[misc, valid-type]
        def get_train_dataloader(self) -> Any:
            if _are_batches(self.train_dataset):
                return _loader(self.train_dataset)
            return super().get_train_dataloader()

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            dataset = self.eval_dataset if eval_dataset is None else eval_dataset
            if isinstance(dataset, str):
                dataset = self.eval_dataset[dataset]
            return _loader(dataset) if _are_batches(dataset) else super().get_eval_dataloader(eval_dataset)

    Prepared.__name__, Prepared.__qualname__ = base.__name__, base.__qualname__
    trainer.__class__ = Prepared
    return trainer


def fit(trainer: Any, **kwargs: Any) -> Any:
    """``trainer.train(...)``, resumed from the run's newest checkpoint if there is one."""
    checkpoint = get_checkpoint()
    if checkpoint is None or kwargs.get("resume_from_checkpoint"):
        return trainer.train(**kwargs)
    with checkpoint.as_directory() as directory:
        path = os.path.join(directory, TransformersReportCallback.CHECKPOINT_NAME)
        return trainer.train(**{**kwargs, "resume_from_checkpoint": path})


def _are_batches(dataset: Any) -> bool:
    return hasattr(dataset, "__iter__") and not isinstance(dataset, Dataset) and not hasattr(dataset, "__getitem__")


def _loader(batches: Any) -> Any:
    return DataLoader(_Batches(batches), batch_size=None)
