"""Keras training as reports and checkpoints of the run."""

from __future__ import annotations

import os
import tempfile
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from holdfast.train.api import get_checkpoint, get_context, report
from holdfast.train.boosting import Metrics, names_of
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.data import shards_of
from holdfast.train.tensorflow.tensorflow_checkpoint import TensorflowCheckpoint
from holdfast.worker.session import current

_STAGES = ("epoch", "train_batch", "test_batch", "predict_batch", "train", "test", "predict")
_EVENTS = tuple(f"{stage}_{end}" for stage in _STAGES for end in ("begin", "end"))
_passed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # epochs of each shard that earlier calls of fit read


class KerasReportCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Reports Keras' metrics on the events of ``report_metrics_on``, and on those of ``checkpoint_on`` also the whole
    model as a checkpoint of rank 0. Events are named as in ``"epoch_end"`` or ``["epoch_end", "train_batch_end"]``.
    ``metrics`` are the metrics to report: one name, a list, or a dict that renames them; None for all. The metric
    ``epoch`` is the number of complete epochs. A shard of ``holdfast.data`` is read in Keras' current epoch, also after
    a resume. If another call of ``fit`` counts epochs from the start again, the shard's epochs continue after those
    that were read.
    """

    def __init__(
        self,
        checkpoint_on: str | list[str] = "epoch_end",
        report_metrics_on: str | list[str] = "epoch_end",
        metrics: Metrics = None,
    ) -> None:
        super().__init__()
        self._checkpoint_on, self._report_on = _events(checkpoint_on), _events(report_metrics_on)
        self._names = names_of(metrics)
        self._epoch = 0
        self._first: int | None = None  # the epoch that this call of fit began with
        self._read: dict[Any, int] = {}  # the epoch of each shard in it
        for event in self._checkpoint_on | self._report_on:
            setattr(self, f"on_{event}", self._hook(event))

    def _hook(self, event: str) -> Any:
        """Keras skips batch events that no callback handles, so only the chosen events get a hook. A hook of the class
        itself runs first."""
        inherited = getattr(self, f"on_{event}")

        def hook(*args: Any, logs: Any = None) -> None:
            given = logs if logs is not None else next((arg for arg in args if isinstance(arg, dict)), None)
            inherited(*args) if logs is None else inherited(*args, logs=logs)
            if event == "epoch_end":
                self._epoch = args[0] + 1
            self._report(given or {}, event in self._checkpoint_on)

        return hook

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Keras starts more iterations over a dataset than it finishes, so this sets the epoch of its shards."""
        self._epoch = epoch
        self._first = epoch if self._first is None else self._first
        for shard in shards_of(current().datasets).values():
            self._read[shard] = epoch + max(0, _passed.get(shard, 0) - self._first)
            shard.pin_epoch(self._read[shard])

    def on_train_end(self, logs: Any = None) -> None:
        for shard, epoch in self._read.items():
            _passed[shard] = epoch + 1
            shard.unpin_epoch()
        self._first, self._read = None, {}

    def _report(self, logs: dict[str, Any], with_checkpoint: bool) -> None:
        found = {name: logs[metric] for name, metric in self._names.items()} if self._names else dict(logs)
        metrics = {"epoch": self._epoch, **found}
        if not with_checkpoint:
            report(metrics)
            return
        with tempfile.TemporaryDirectory() as directory:
            # All workers save, because saving may gather variables. Only the files of rank 0 are reported.
            self.model.save(os.path.join(directory, TensorflowCheckpoint.MODEL_FILENAME))
            if get_context().get_world_rank() != 0:
                report(metrics)
                return
            checkpoint = Checkpoint.from_directory(directory)
            checkpoint.set_metadata(
                {TensorflowCheckpoint.MODEL_FILENAME_KEY: TensorflowCheckpoint.MODEL_FILENAME, "epoch": self._epoch}
            )
            report(metrics, checkpoint)


ReportCheckpointCallback = KerasReportCallback  # the name in scripts for Ray


def resumed_model(model: Any) -> tuple[Any, int]:
    """Return the model of the run's newest checkpoint and the number of its complete epochs; without a checkpoint, the
    given model and 0. Call it inside ``strategy.scope()``, and pass the number as ``initial_epoch`` to
    ``model.fit``."""
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return model, 0
    found = TensorflowCheckpoint(checkpoint.location)
    return found.get_model(), int(found.get_metadata().get("epoch", 0))


def _events(events: str | list[str]) -> set[str]:
    found = {events} if isinstance(events, str) else set(events)
    unknown = sorted(found - set(_EVENTS))
    if unknown:
        raise ValueError(f"Keras has no event {unknown[0]!r}: use {', '.join(_EVENTS)}")
    return found
