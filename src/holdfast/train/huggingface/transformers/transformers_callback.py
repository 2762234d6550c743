"""The checkpoints that the Transformers ``Trainer`` saves, as checkpoints of the run."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from holdfast.train.api import checkpoint_requested, get_context, report
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.data import shards_of
from holdfast.worker.session import current

SHARDS_FILE = "shards.json"  # the states of the shards, in the directory that the Trainer saved


class TransformersReportCallback(TrainerCallback):  # type: ignore[misc]
    """Reports the newest value of each logged metric, with the checkpoint that the ``Trainer`` has just saved, below
    ``checkpoint/``. ``TrainingArguments(save_strategy, save_steps)`` say when that is. One more is saved when a
    checkpoint is requested because the workers are about to end (a preemption, a resize, a requested stop)."""

    CHECKPOINT_NAME = "checkpoint"

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if checkpoint_requested():
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics.update(logged)
        metrics.update(step=state.global_step, epoch=state.epoch)
        saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        with tempfile.TemporaryDirectory() as directory:
            _copy_own_files(saved, Path(directory, self.CHECKPOINT_NAME))
            report(metrics, Checkpoint.from_directory(directory))


RayTrainReportCallback = TransformersReportCallback  # the name in scripts for Ray


def _copy_own_files(saved: Path, target: Path) -> None:
    """Each rank reports the random state that it saved, and rank 0 all the rest: where the ranks share a directory, a
    rank may not have saved yet. The shards of datasets have the same state on all ranks."""
    rank = get_context().get_world_rank()
    own = f"rng_state_{rank}.pth"

    def others(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name.startswith("rng_state_") and name != own]

    if rank == 0:
        shutil.copytree(saved, target, ignore=others)
        states = {name: shard.state_dict() for name, shard in shards_of(current().datasets).items()}
        if states:
            (target / SHARDS_FILE).write_text(json.dumps(states))
    elif (saved / own).exists():
        target.mkdir()
        shutil.copy2(saved / own, target)
