"""Functions for a train function with a Transformers ``Trainer``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from holdfast.data.batch_iterables import Repeatable
from holdfast.train.api import get_checkpoint
from holdfast.train.data import is_shard, shards_of
from holdfast.train.huggingface.transformers.transformers_callback import SHARDS_FILE, TransformersReportCallback
from holdfast.worker.session import current


class _Batches(IterableDataset):  # type: ignore[misc]
    """Ready-made batches, as a dataset whose samples are batches."""

    def __init__(self, batches: Any, skip: int = 0) -> None:
        self._batches, self._skip = batches, skip

    def __iter__(self) -> Iterator[Any]:
        """A Trainer stops at an epoch without batches. If a state was saved after the last batch of an epoch, or if all
        batches of an epoch are skipped, the next epoch therefore follows immediately."""
        skip, self._skip = self._skip, 0
        empty_passes, is_given = (2 if _are_of_shard(self._batches) else 1), False
        while empty_passes and not is_given:
            count = 0
            for count, batch in enumerate(self._batches, 1):
                if count > skip:
                    is_given = True
                    yield batch
            skip = max(0, skip - count)
            empty_passes -= count == 0


def prepare_trainer(trainer: Any) -> Any:
    """Let a ``transformers.Trainer`` also accept a ``train_dataset`` and ``eval_dataset`` that iterate over batches,
    such as ``iter_torch_batches()`` of a dataset shard. Returns the trainer. Training then resumes at the shard's own
    state. If the checkpoint has no such state, the batches that were trained on are skipped, unless
    ``ignore_data_skip`` is set."""
    base = type(trainer)

    class Prepared(base):  # type: ignore[misc, valid-type]
        _was_finished = False
        _skip = 0

        def get_train_dataloader(self) -> Any:
            if _are_batches(self.train_dataset):
                return _loader(() if self._was_finished else self.train_dataset, self._skip)
            return super().get_train_dataloader()

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            dataset = self.eval_dataset if eval_dataset is None else eval_dataset
            if isinstance(dataset, str):
                dataset = self.eval_dataset[dataset]
            return _loader(dataset) if _are_batches(dataset) else super().get_eval_dataloader(eval_dataset)

        def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:
            saved = _directory(resume_from_checkpoint, self.args.output_dir)
            if saved is None or not _are_of_shard(self.train_dataset):
                self._was_finished, self._skip = False, 0
                return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
            steps, shard, ignores = _steps_of(saved), self.train_dataset.shard, self.args.ignore_data_skip
            self._was_finished, self._skip = steps >= self.args.max_steps, 0
            if shard not in _resume_shards(saved) and not ignores:
                shard.pin_epoch(0)  # all of it
                shard.set_epoch(0)
                self._skip = steps * self.args.gradient_accumulation_steps
            self.args.ignore_data_skip = True  # a Trainer would skip within one epoch only
            try:
                return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
            finally:
                self.args.ignore_data_skip = ignores

    Prepared.__name__, Prepared.__qualname__ = base.__name__, base.__qualname__
    trainer.__class__ = Prepared
    return trainer


def fit(trainer: Any, **kwargs: Any) -> Any:
    """Call ``trainer.train(...)``, resuming from the run's newest checkpoint if there is one."""
    checkpoint = get_checkpoint()
    if checkpoint is None or kwargs.get("resume_from_checkpoint"):
        return trainer.train(**kwargs)
    with checkpoint.as_directory() as directory:
        path = os.path.join(directory, TransformersReportCallback.CHECKPOINT_NAME)
        return trainer.train(**{**kwargs, "resume_from_checkpoint": path})


def _are_batches(dataset: Any) -> bool:
    return hasattr(dataset, "__iter__") and not isinstance(dataset, Dataset) and not hasattr(dataset, "__getitem__")


def _are_of_shard(dataset: Any) -> bool:
    return isinstance(dataset, Repeatable) and is_shard(dataset.shard)


def _directory(resume_from_checkpoint: Any, output_dir: str) -> Path | None:
    """As a Trainer finds it; True stands for the newest in its own directory."""
    if resume_from_checkpoint is True:
        found = get_last_checkpoint(output_dir) if os.path.isdir(output_dir) else None
        return None if found is None else Path(found)
    return Path(resume_from_checkpoint) if isinstance(resume_from_checkpoint, str | os.PathLike) else None


def _resume_shards(saved: Path) -> list[Any]:
    """The shards whose states are in the checkpoint. Checkpoints of the Trainer itself and of older versions have
    none."""
    file = saved / SHARDS_FILE
    if not file.exists():
        return []
    states, resumed = json.loads(file.read_text()), []
    for name, shard in shards_of(current().datasets).items():
        if name in states:
            shard.load_state_dict(states[name])
            resumed.append(shard)
    return resumed


def _steps_of(saved: Path) -> int:
    """A Trainer that resumes after the last step looks at ``max_steps`` only after one more."""
    file = saved / TRAINER_STATE_NAME
    return int(json.loads(file.read_text())["global_step"]) if file.exists() else 0


def _loader(batches: Any, skip: int = 0) -> Any:
    return DataLoader(_Batches(batches, skip), batch_size=None)
