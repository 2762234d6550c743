"""What a worker unpickles and runs. Kept apart from the trainer, whose imports no worker needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.train.checkpoint import Checkpoint
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
    def __init__(self, fn: Callable[[], Any], datasets: dict[str, Any], initial: Checkpoint | None) -> None:
        self.fn, self.datasets, self.initial = fn, datasets, initial

    def __call__(self) -> Any:
        current().datasets, current().initial = self.datasets, self.initial
        return self.fn()


class Validation:
    """Runs in a process of its own: the validation function on one checkpoint."""

    def __init__(self, fn: Any, checkpoint: Checkpoint, arguments: dict[str, Any]) -> None:
        self.fn, self.checkpoint, self.arguments = fn, checkpoint, arguments

    def __call__(self) -> Any:
        current().ready()
        return self.fn(self.checkpoint, **self.arguments)
