"""Options that have no effect in training: they are accepted, with one warning each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.train.checks import warn_once
from holdfast.train.config import FailureConfig, RunConfig, SyncConfig
from holdfast.train.scaling_config import ScalingConfig
from holdfast.train.user_callback import UserCallback

Option = tuple[str, Any, str]  # its name, whether it is given, and why it has no effect


def warn_unused_in_training(scaling: ScalingConfig, run: RunConfig, on_ray: bool = False) -> None:
    """Warn once for each option that has no effect on a train function."""
    others = [type(callback).__name__ for callback in run.callbacks if not isinstance(callback, UserCallback)]
    of_training: list[Option] = [
        ("RunConfig(stop)", run.stop, "return from the train function when it should end"),
        ("RunConfig(progress_reporter)", run.progress_reporter, "it is for tuning"),
        (
            f"RunConfig(callbacks=[{', '.join(others)}])",
            others,
            "it is for tuning; training needs a train.UserCallback",
        ),
        ("FailureConfig(fail_fast)", run.failure_config.fail_fast, "a run ends at its first failure by default"),
    ]
    warn_unused(
        "a train function",
        [
            *of_workers(scaling, on_ray),
            *of_train_functions(run),
            *of_any_run(run, on_ray),
            *of_workers_output(run),
            *of_training,
        ],
    )


def warn_unused(on_what: str, options: Iterable[Option]) -> None:
    for option, given, reason in options:
        if given:
            warn_once(f"{option} on {on_what}", f"{option} has no effect on {on_what}: {reason}.", stacklevel=5)


def of_workers(scaling: ScalingConfig, on_ray: bool) -> list[Option]:
    return [
        ("ScalingConfig(trainer_resources)", scaling.trainer_resources, "the driver reserves nothing"),
        ("ScalingConfig(accelerator_type)", scaling.accelerator_type and not on_ray, _ONE_MACHINE),
        ("ScalingConfig(label_selector)", scaling.label_selector and not on_ray, _ONE_MACHINE),
        ("ScalingConfig(use_tpu)", scaling.use_tpu and not on_ray, "TPUs are not supported yet"),
        ("ScalingConfig(topology)", scaling.topology and not on_ray, "TPUs are not supported yet"),
    ]


def of_train_functions(run: RunConfig) -> list[Option]:
    return [
        ("CheckpointConfig(checkpoint_frequency)", run.checkpoint_config.checkpoint_frequency, _SAVES_BY_REPORT),
        ("CheckpointConfig(checkpoint_at_end)", run.checkpoint_config.checkpoint_at_end, _SAVES_BY_REPORT),
    ]


def of_workers_output(run: RunConfig) -> list[Option]:
    files = not isinstance(run.log_to_file, bool)
    return [("RunConfig(log_to_file)", files, "each worker's output is always kept under the run's logs/")]


def of_any_run(run: RunConfig, on_ray: bool) -> list[Option]:
    """Whether it trains or tunes."""
    sync, failure = run.sync_config, run.failure_config
    other = [] if on_ray else sorted(set(run.worker_runtime_env) - {"env_vars"})
    return [
        (f"RunConfig(worker_runtime_env={other})", other, "workers run in the script's own environment"),
        ("SyncConfig(sync_artifacts)", sync.sync_artifacts, _SAVED_WITH_CHECKPOINTS),
        ("SyncConfig(sync_artifacts_on_checkpoint)", not sync.sync_artifacts_on_checkpoint, _SAVED_WITH_CHECKPOINTS),
        (
            "SyncConfig(sync_timeout)",
            sync.sync_timeout != SyncConfig.sync_timeout,
            "HOLDFAST_STORAGE_PATIENCE_S says how long storage is waited for",
        ),
        (
            "FailureConfig(controller_failure_limit)",
            failure.controller_failure_limit != FailureConfig.controller_failure_limit,
            "a run whose driver died may be started again any number of times",
        ),
        (
            "FailureConfig(relax_collectives_on_preemption)",
            failure.relax_collectives_on_preemption,
            "workers train until their node is preempted",
        ),
    ]


_ONE_MACHINE = "on one machine all workers are on the same node"
_SAVES_BY_REPORT = "it saves when it calls report(metrics, checkpoint=…)"
_SAVED_WITH_CHECKPOINTS = "save files with a checkpoint to keep them"
