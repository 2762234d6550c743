"""A script as the workers of a run: each runs it as ``__main__``, with the variables that torchrun would set.

Nothing here imports torch: a script that does not use it starts without it.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.train.config import BackendConfig
from holdfast.worker.session import current

if TYPE_CHECKING:
    from holdfast.worker.session import Session

_MEET_WITHIN_S = 300.0


@dataclass(frozen=True)
class Script:
    """The train function: runs a file, or a module as ``python -m`` does. ``sys.argv`` is the session's already."""

    target: str
    is_module: bool

    def __call__(self) -> None:
        try:
            if self.is_module:
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(self.target, run_name="__main__")
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise


class TorchrunEnvironment(BackendConfig):
    """No process group is formed: the script's own ``init_process_group()`` finds what it needs."""

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InEnvironment(train_fn)


class WarmTorchrunEnvironment(TorchrunEnvironment):
    """For scripts that use torch: it is imported once, for all workers and all their restarts."""

    essential = ("torch",)
    preload = ("torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data")


@dataclass(frozen=True)
class _InEnvironment:
    train_fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        session = current()
        with _meeting_point(session) as (host, port), _variables(session, host, port):
            return self.train_fn(*args)


@contextmanager
def _meeting_point(session: Session) -> Iterator[tuple[str, int]]:
    """Where rank 0 will listen. It holds the port by a socket that is bound and never listens, so that nobody else is
    given it before the script's own store, which may bind it too, is there."""
    if session.rank != 0:
        yield session.request("broadcast", None, _MEET_WITHIN_S)
        return
    family = socket.AF_INET6 if ":" in session.address else socket.AF_INET
    with socket.socket(family) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((session.address, 0))
        place = (session.address, held.getsockname()[1])
        if session.world_size > 1:
            session.request("broadcast", place, _MEET_WITHIN_S)
        yield place


@contextmanager
def _variables(session: Session, host: str, port: int) -> Iterator[None]:
    """Put back afterwards: with ``--workers 0`` this is the process of the command."""
    wanted = {
        "RANK": session.rank,
        "WORLD_SIZE": session.world_size,
        "LOCAL_RANK": session.local_rank,
        "LOCAL_WORLD_SIZE": session.local_world_size,
        "GROUP_RANK": session.node_rank,
        "NODE_RANK": session.node_rank,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": session.run_name,
        "TORCHELASTIC_RESTART_COUNT": session.generation - 1,
    }
    if session.local_world_size == session.world_size and "GLOO_SOCKET_IFNAME" not in os.environ:
        # Without it gloo looks the host's name up, which is slow or wrong on many machines.
        wanted["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update({name: str(value) for name, value in wanted.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
