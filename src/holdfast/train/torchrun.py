"""The variables that torchrun sets, for scripts that form their process group themselves.

Nothing here imports torch: a script that does not use it starts without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.train.config import BackendConfig
from holdfast.train.rendezvous import environment, from_rank_zero, held_port
from holdfast.worker.session import current

if TYPE_CHECKING:
    from holdfast.worker.session import Session


class TorchrunEnvironment(BackendConfig):
    """No process group is formed: the script's own ``init_process_group()`` finds its settings."""

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
        with _meeting_point(session) as (host, port):
            launched = {
                "GROUP_RANK": session.node_rank,
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "TORCHELASTIC_RUN_ID": session.run_name,
                "TORCHELASTIC_RESTART_COUNT": session.attempt_number - 1,
            }
            with environment({**variables(session), **{name: str(value) for name, value in launched.items()}}):
                return self.train_fn(*args)


@contextmanager
def _meeting_point(session: Session) -> Iterator[tuple[str, int]]:
    """The address where rank 0 will listen. Rank 0 holds the port until the script's own store exists, and longer."""
    if session.rank != 0:
        yield from_rank_zero(session, None)
        return
    with held_port(session) as port:
        yield from_rank_zero(session, (session.address, port))


def variables(session: Session) -> dict[str, str]:
    """Those that say which worker this is."""
    wanted: dict[str, Any] = {
        "RANK": session.rank,
        "WORLD_SIZE": session.world_size,
        "LOCAL_RANK": session.local_rank,
        "LOCAL_WORLD_SIZE": session.local_world_size,
        "NODE_RANK": session.node_rank,
    }
    if session.local_world_size == session.world_size and "GLOO_SOCKET_IFNAME" not in os.environ:
        # Without it gloo looks the host's name up, which is slow or wrong on many machines.
        wanted["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    return {name: str(value) for name, value in wanted.items()}
