"""What a worker unpickles and runs. Separate from the trainer, whose imports no worker needs."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.context import OWN_DIRECTORY, TRIAL
from holdfast.train.validation import ValidationConfig, ValidationExecution
from holdfast.worker.session import current

TrainFn = Callable[[], Any] | Callable[[dict[str, Any]], Any]


class TrainEntry:
    """The innermost call: the group is formed, the user's function begins."""

    def __init__(self, fn: TrainFn, config: dict[str, Any], takes_config: bool) -> None:
        self.fn, self.config, self.takes_config = fn, config, takes_config

    def __call__(self) -> Any:
        current().ready()
        return self.fn(self.config) if self.takes_config else self.fn()  # type: ignore[call-arg]


class Payload:
    def __init__(
        self,
        fn: Callable[[], Any],
        datasets: dict[str, Any],
        initial: Checkpoint | None,
        is_out_of_memory: Callable[[BaseException], bool],
    ) -> None:
        self.fn, self.datasets, self.initial, self.is_out_of_memory = fn, datasets, initial, is_out_of_memory

    def __call__(self) -> Any:
        session = current()
        session.datasets, session.initial = self.datasets, self.initial
        session.is_out_of_memory = self.is_out_of_memory
        if TRIAL in session.metadata:
            session.common_metrics = {"pid": os.getpid()}
            if session.metadata[TRIAL].get(OWN_DIRECTORY):
                enter_own_directory(session.run_dir)
        return self.fn()


def enter_own_directory(trial_dir: str) -> None:
    """Trials must not find each other's files under relative paths, and the script's directory must stay importable.
    Files are written below the trial's directory, where they cannot be mistaken for Holdfast's own."""
    sys.path[:] = [os.path.abspath(path) if os.path.isdir(path or ".") else path for path in sys.path]
    with contextlib.suppress(FileNotFoundError):  # it has been removed
        os.environ["TUNE_ORIG_WORKING_DIR"] = os.getcwd()
    own = os.path.join(trial_dir, "working_dir")
    os.makedirs(own, exist_ok=True)
    os.chdir(own)


def validator(
    config: ValidationConfig | None, location: Location, pickled: Callable[[str, Any], bytes]
) -> Callable[[str, dict[str, Any]], tuple[bytes, float | None, int]] | None:
    """For the plan of a run: a checkpoint's id and the arguments of its report become a task, its time limit, and how
    often it is retried."""
    if config is None:
        return None
    fn, default, how = config.fn, config.task_config, config.execution

    def task(id: str, arguments: dict[str, Any]) -> tuple[bytes, float | None, int]:
        kwargs = {**(default.fn_kwargs or {}), **(arguments.get("fn_kwargs") or {})}
        validation = Validation(fn, Checkpoint(location / "checkpoints" / id), kwargs, how)
        timeout_s = arguments.get("timeout_s") or default.timeout_s
        return pickled("the validation function", validation), timeout_s, how.max_retries

    return task


class Validation:
    """Runs in a separate process: the validation function on one checkpoint."""

    def __init__(
        self, fn: Any, checkpoint: Checkpoint, arguments: dict[str, Any], execution: ValidationExecution
    ) -> None:
        self.fn, self.checkpoint, self.arguments, self.execution = fn, checkpoint, arguments, execution

    def __call__(self) -> Any:
        current().ready()
        os.environ.update(self.execution.env)
        for tried in itertools.count():
            try:
                return self.fn(self.checkpoint, **self.arguments)
            except self.execution.retried:
                if 0 <= self.execution.max_retries <= tried:
                    raise
                traceback.print_exc()
        raise AssertionError("unreachable")
