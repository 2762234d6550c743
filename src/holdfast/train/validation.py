"""Validation of checkpoints beside training: the function, its defaults, and what one report may override."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.train.checks import check_number, warn_once


class ValidationFn(Protocol):
    """A function that takes a checkpoint and the task's keyword arguments, and returns metrics to add to the
    checkpoint.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...


@dataclass
class ValidationTaskConfig:
    """The settings of one validation: keyword arguments for the function (plain JSON values), and a time limit (None:
    no limit).
    """

    fn_kwargs: dict[str, Any] | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        self.fn_kwargs = {} if self.fn_kwargs is None else self.fn_kwargs
        if not isinstance(self.fn_kwargs, dict):
            raise TypeError(f"ValidationTaskConfig(fn_kwargs={self.fn_kwargs!r}): pass a dict of keyword arguments")
        try:
            json.dumps(self.fn_kwargs)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"ValidationTaskConfig(fn_kwargs={self.fn_kwargs!r}): {error}. It is recorded with the checkpoint, "
                "so pass plain values (numbers, strings, lists, dicts); bind anything else with functools.partial"
            ) from error
        if self.timeout_s is not None:
            check_number("ValidationTaskConfig(timeout_s", self.timeout_s, above=0)


class ValidationConfig:
    """The validation function of a run, passed to the trainer.

    ``ray_remote_kwargs`` has no effect, and a warning says so: a validation runs as a process on a node of the run.
    """

    def __init__(
        self,
        fn: ValidationFn,
        task_config: ValidationTaskConfig | None = None,
        ray_remote_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(
                f"ValidationConfig(fn={fn!r}): pass a function that takes a Checkpoint and returns a dict of metrics"
            )
        if task_config is not None and not isinstance(task_config, ValidationTaskConfig):
            raise TypeError(
                f"ValidationConfig(task_config={task_config!r}): pass a holdfast.train.ValidationTaskConfig"
            )
        if ray_remote_kwargs:
            warn_once(
                "ValidationConfig(ray_remote_kwargs)",
                f"ValidationConfig(ray_remote_kwargs={ray_remote_kwargs!r}) has no effect: a validation is a process "
                "on a node of the run, beside the workers",
            )
        self.fn = fn
        self.task_config = task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = ray_remote_kwargs or {}
