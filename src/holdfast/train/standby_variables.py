"""The variables that say which worker a process is. A standby has no rank yet: reading one of them waits until it has
one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.train.rendezvous import environment
from holdfast.train.torchrun import variables

if TYPE_CHECKING:
    from holdfast.worker.session import Session
    from holdfast.worker.worker_place import WorkerPlace

_OF_THE_RANK = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")


class _WaitingVariables(os._Environ):  # type: ignore[type-arg]
    """``os.environ`` of a standby."""

    place: WorkerPlace

    def __getitem__(self, name: str) -> str:
        if name in _OF_THE_RANK:
            self.place.get()
        return str(super().__getitem__(name))


@contextmanager
def variables_of(session: Session) -> Iterator[None]:
    """Set the variables; in a standby, as soon as it has a rank."""
    if session.place.is_known:
        with environment(variables(session)):
            yield
        return
    plain = type(os.environ)
    with environment({"WORLD_SIZE": str(session.world_size), **dict.fromkeys(_OF_THE_RANK, "")}):
        os.environ.__class__ = _WaitingVariables
        os.environ.place = session.place  # type: ignore[attr-defined]
        session.place.when_known(lambda: os.environ.update(variables(session)))
        try:
            yield
        finally:
            os.environ.__class__ = plain
