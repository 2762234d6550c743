"""Lightning's checkpoints as checkpoints of the run. They are reported after epochs, after steps, and on request."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import torch

from holdfast.train.api import checkpoint_requested, get_checkpoint, get_context, report
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.checks import check_int
from holdfast.train.lightning.lightning_modules import pl
from holdfast.train.lightning.strategies import _WorkerStrategy
from holdfast.train.reported import CheckpointUploadMode
from holdfast.train.torch.rng import rng_state, set_rng_state
from holdfast.train.validation import ValidationTaskConfig


class LightningReportCallback(pl.callbacks.Callback):  # type: ignore[misc]
    """Reports ``trainer.callback_metrics`` with a checkpoint after each training epoch, and after every
    ``every_n_train_steps`` steps if that is given; also when a checkpoint is requested because the workers are about to
    end (a preemption, a resize, a requested stop).

    The checkpoint is a directory with Lightning's ``checkpoint.ckpt`` and the random state of each rank. Resume with
    ``fit(trainer, model, ...)``, or pass ``ckpt_path`` to Lightning's own.
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(
        self,
        checkpoint_upload_mode: CheckpointUploadMode | None = None,
        validation: bool | ValidationTaskConfig = False,
        *,
        every_n_train_steps: int | None = None,
    ) -> None:
        super().__init__()
        if every_n_train_steps is not None:
            check_int("LightningReportCallback(every_n_train_steps", every_n_train_steps, least=1)
        self.checkpoint_upload_mode = checkpoint_upload_mode or CheckpointUploadMode.ASYNC
        self.validation = validation
        self.every_n_train_steps = every_n_train_steps
        self._reported_step = -1
        self._random: Any = None

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Lightning saves the state of rank 0; each rank adds its own random state."""
        path = os.path.join(os.path.dirname(str(trainer.ckpt_path)), _random_file())
        if os.path.exists(path):
            self._random = torch.load(path, weights_only=True)
        if isinstance(trainer.strategy, _WorkerStrategy):
            trainer.strategy.resumed_random = self._random
            trainer.strategy.resumed_loaders = list(_fit_loop(checkpoint).get("combined_loader", ()))
        self._reported_step = checkpoint["global_step"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._random is not None:
            set_rng_state(self._random)
            self._random = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, every = trainer.global_step, self.every_n_train_steps
        if step == self._reported_step:
            return  # gradients accumulate
        # The last batch of an epoch is reported with the epoch.
        is_due = every is not None and step % every == 0 and not trainer.is_last_batch
        if is_due or (checkpoint_requested() and not trainer.is_last_batch):
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._report(trainer)

    def _report(self, trainer: Any) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics.update(epoch=trainer.current_epoch, step=trainer.global_step)
        self._reported_step = trainer.global_step
        with tempfile.TemporaryDirectory() as directory:
            trainer.save_checkpoint(os.path.join(directory, self.CHECKPOINT_NAME), weights_only=False)
            torch.save(rng_state(), os.path.join(directory, _random_file()))
            report(
                metrics,
                Checkpoint.from_directory(directory),
                checkpoint_upload_mode=self.checkpoint_upload_mode,
                validation=self.validation,
            )


RayTrainReportCallback = LightningReportCallback  # the name in scripts for Ray


def fit(trainer: Any, *args: Any, **kwargs: Any) -> None:
    """Call ``trainer.fit(...)``, resuming from the run's newest checkpoint if there is one."""
    checkpoint = get_checkpoint()
    if checkpoint is None or kwargs.get("ckpt_path") is not None:
        trainer.fit(*args, **kwargs)
        return
    with checkpoint.as_directory() as directory:
        trainer.fit(*args, **{**kwargs, "ckpt_path": os.path.join(directory, LightningReportCallback.CHECKPOINT_NAME)})


def _fit_loop(checkpoint: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
    return found


def _random_file() -> str:
    return f"random-{get_context().get_world_rank()}.pt"
