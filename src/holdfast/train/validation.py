"""Validation of checkpoints beside training: the function, its defaults, and what one report may override."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.train.checks import WrongTypeError, check_int, check_number, warn_once

# What Ray's tasks take. Those without effect would only place the task, and a validation reserves nothing
_OPTIONS_OF_RAY = frozenset(
    {
        *("accelerator_type", "concurrency_group", "enable_task_events", "fallback_strategy", "isolate_process"),
        *("label_selector", "max_calls", "max_retries", "memory", "name", "namespace", "num_cpus", "num_gpus"),
        *("num_returns", "object_store_memory", "placement_group", "placement_group_bundle_index"),
        *("placement_group_capture_child_tasks", "resources", "retry_exceptions", "runtime_env"),
        *("scheduling_strategy", "tensor_transport", "_generator_backpressure_num_objects", "_labels", "_metadata"),
    }
)
_MAX_RETRIES = 3


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

    Of Ray's task options in ``ray_remote_kwargs``, these have an effect: ``max_retries``, how often a validation is
    retried whose process was killed or crashed (3 by default, -1 for no limit); ``retry_exceptions``, True or a list of
    exception types: exceptions for which it is retried as well; and ``env_vars`` in ``runtime_env``. A warning names
    the others: a validation is a process on a node of the run, and reserves no resources.
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
        self.fn = fn
        self.task_config = task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = ray_remote_kwargs or {}
        self.execution = _execution(self.ray_remote_kwargs)


@dataclass(frozen=True)
class ValidationExecution:
    """How validations run, as ``ray_remote_kwargs`` say. ``retried`` are the exceptions for which one is retried."""

    max_retries: int = _MAX_RETRIES
    retried: tuple[type[BaseException], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def _execution(options: Mapping[str, Any]) -> ValidationExecution:
    where = "ValidationConfig(ray_remote_kwargs"
    if not isinstance(options, Mapping):
        raise WrongTypeError(f"{where}={options!r}): pass a dict of options")
    unknown = sorted(set(options) - _OPTIONS_OF_RAY)
    if unknown:
        raise ValueError(f"{where}={dict(options)!r}): {', '.join(unknown)} is not an option of Ray's tasks")
    retries = options.get("max_retries", _MAX_RETRIES)
    check_int(f"{where}['max_retries']", retries, least=-1, note="; -1 for no limit")
    given = options.get("runtime_env") or {}
    if not isinstance(given, Mapping):
        raise WrongTypeError(f"{where}['runtime_env']={given!r}): pass a dict, such as {{'env_vars': {{...}}}}")
    env = given.get("env_vars") or {}
    if not isinstance(env, Mapping):
        raise WrongTypeError(f"{where}['runtime_env']['env_vars']={env!r}): pass a dict of strings")
    if not all(isinstance(text, str) for pair in env.items() for text in pair):
        raise WrongTypeError(f"{where}['runtime_env']['env_vars']={env!r}): pass strings")
    parts = [f"runtime_env[{name!r}]" for name in given if name != "env_vars"]
    unused = sorted([*(set(options) - {"max_retries", "retry_exceptions", "runtime_env"}), *parts])
    if unused:
        warn_once(
            f"{where}: {unused}",
            f"{where}={dict(options)!r}): {', '.join(unused)} has no effect: a validation is a process on a node of "
            "the run, beside the workers, and reserves no resources",
        )
    return ValidationExecution(retries, _retried(where, options.get("retry_exceptions")), env)


def _retried(where: str, given: Any) -> tuple[type[BaseException], ...]:
    if given is None or given is False:
        return ()
    if given is True:
        return (Exception,)
    if isinstance(given, (list, tuple)) and all(isinstance(e, type) and issubclass(e, BaseException) for e in given):
        return tuple(given)
    raise WrongTypeError(f"{where}['retry_exceptions']={given!r}): pass True, False or a list of exception types")
