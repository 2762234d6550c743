"""How to add a framework as in Ray Train: a ``Backend`` whose hooks run around the train function.

Ray calls the hooks once, in its controller. Here every worker calls them, and the worker group that they receive runs
on each rank what is requested for all or one of them, so that all ranks see the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.train.config import BackendConfig as BackendConfig
from holdfast.train.rendezvous import gather
from holdfast.worker.session import Session, current


class BackendGroup:
    """The workers of an attempt, as the hooks of a ``Backend`` see them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __len__(self) -> int:
        return self._session.world_size

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Call the function on every rank, and return the results in the order of the ranks."""
        return gather(self._session, func(*args, **kwargs))

    def execute_single(self, worker_index: int, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function on one rank, and return its result."""
        is_here = self._session.rank == worker_index
        return gather(self._session, func(*args, **kwargs) if is_here else None)[worker_index]


class Backend:
    """Sets up a framework before the train function and cleans up after it. Name the class in
    ``BackendConfig.backend_cls``.
    """

    def on_start(self, worker_group: BackendGroup, backend_config: BackendConfig) -> None:
        """Called before the train function."""

    def on_training_start(self, worker_group: BackendGroup, backend_config: BackendConfig) -> None:
        """Called right before the train function, after ``on_start``."""

    def on_shutdown(self, worker_group: BackendGroup, backend_config: BackendConfig) -> None:
        """Called after the train function has returned. It is not called after a failure, because other ranks may still
        be busy.
        """


@dataclass(frozen=True)
class InBackend:
    """Calls a train function between the hooks of a backend."""

    config: BackendConfig
    train_fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        session = current()
        backend, group = self.config.backend_cls(), BackendGroup(session)
        backend.on_start(group, self.config)
        backend.on_training_start(group, self.config)
        with self.config.train_func_context():
            result = self.train_fn(*args)
        session.at_end(lambda: backend.on_shutdown(group, self.config))
        return result
