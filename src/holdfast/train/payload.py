"""What a worker unpickles and runs. Separate from the trainer, whose imports no worker needs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from holdfast.train.checkpoint import Checkpoint
from holdfast.train.context import OWN_DIRECTORY, TRIAL
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


class Validation:
    """Runs in a separate process: the validation function on one checkpoint."""

    def __init__(self, fn: Any, checkpoint: Checkpoint, arguments: dict[str, Any]) -> None:
        self.fn, self.checkpoint, self.arguments = fn, checkpoint, arguments

    def __call__(self) -> Any:
        current().ready()
        return self.fn(self.checkpoint, **self.arguments)
