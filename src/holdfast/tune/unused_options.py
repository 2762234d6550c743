"""Options that have no effect in tuning: they are accepted, with one warning each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.trackers.trial_callback import Callback
from holdfast.train.config import RunConfig
from holdfast.train.trainer import DataParallelTrainer
from holdfast.train.unused import Option, of_any_run, of_train_functions, of_workers, of_workers_output, warn_unused
from holdfast.tune.tune_config import TuneConfig


def warn_unused_in_tuning(trainable: Any, tune: TuneConfig, run: RunConfig, on_ray: bool = False) -> None:
    """Warn once for each option that has no effect on trials."""
    others = [type(callback).__name__ for callback in run.callbacks if not isinstance(callback, Callback)]
    of_tuning: list[Option] = [
        (
            "RunConfig(log_to_file)",
            run.log_to_file and run.location.takes_uploads and not isinstance(trainable, DataParallelTrainer),
            f"{run.location} is not a disk, and what trials print is in their logs there",
        ),
        ("TuneConfig(reuse_actors)", tune.reuse_actors, "a trial's process costs a fork"),
        (f"RunConfig(callbacks=[{', '.join(others)}])", others, "only a tune.Callback hears of trials"),
        (
            "FailureConfig(preemption_grace_s)",
            run.failure_config.preemption_grace_s,
            "at a SIGTERM they stop immediately, and resume from their last checkpoints when the experiment does",
        ),
    ]
    of_trainer = _of_trainer(trainable, run, on_ray) if isinstance(trainable, DataParallelTrainer) else []
    warn_unused("trials", [*of_tuning, *of_any_run(run, on_ray), *of_trainer])


def _of_trainer(trainer: DataParallelTrainer, run: RunConfig, on_ray: bool) -> list[Option]:
    own = trainer.run_config
    given = own.has_own_name or own != RunConfig(name=own.name)
    is_same = own == run or (not own.has_own_name and own == replace(run, name=own.name))  # then the Tuner has named it
    instead: Option = ("The trainer's own run_config", given and not is_same, "the Tuner's takes its place")
    of_runs = [*of_train_functions(run), *of_workers_output(run)]
    return [instead, *of_workers(trainer.scaling_config, on_ray), *of_runs]
