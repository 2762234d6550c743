"""Callbacks of the user. They run in the driver, never in a worker, one after the other in the order given."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import message_of
from holdfast.store.location import Location

if TYPE_CHECKING:
    from holdfast.train.checkpoint import Checkpoint
    from holdfast.train.config import BackendConfig, RunConfig
    from holdfast.train.data_config import DataConfig
    from holdfast.train.scaling_config import ScalingConfig


@dataclass
class TrainRunContext:
    """The run for which a callback is called."""

    run_config: RunConfig
    train_loop_config: dict[str, Any] | None
    scaling_config: ScalingConfig
    backend_config: BackendConfig
    dataset_config: DataConfig
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def get_run_config(self) -> RunConfig:
        """Return ``run_config``."""
        return self.run_config


class UserCallback:
    """The base class of callbacks. Override the methods that you need, and pass instances to
    ``RunConfig(callbacks=[...])``.
    """

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Called when all ranks have made a report. ``metrics[i]`` is from rank i; ``checkpoint`` is committed, or
        None.
        """

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        """Called when workers have failed, with their exceptions by world rank."""


@contextmanager
def _named(callback: UserCallback, method: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(
            f"{type(callback).__name__}.{method} raised {type(error).__name__}: {message_of(error)}"
        ) from error


def tell_of_reports(
    context: TrainRunContext, location: Location, callbacks: Sequence[UserCallback]
) -> Callable[[int, list[dict[str, Any]], str | None], None]:
    def tell(_index: int, metrics: list[dict[str, Any]], id: str | None) -> None:
        from holdfast.train.checkpoint import Checkpoint

        checkpoint = None if id is None else Checkpoint(location / "checkpoints" / id)
        for callback in callbacks:
            with _named(callback, "after_report"):
                callback.after_report(context, metrics, checkpoint)

    return tell


def tell_of_exceptions(
    context: TrainRunContext, callbacks: Sequence[UserCallback]
) -> Callable[[dict[int, Exception]], None]:
    def tell(exceptions: dict[int, Exception]) -> None:
        for callback in callbacks:
            with _named(callback, "after_exception"):
                callback.after_exception(context, exceptions)

    return tell
