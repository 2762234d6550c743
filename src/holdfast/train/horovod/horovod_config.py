"""The environment of a Horovod job around a train function: it calls ``hvd.init()`` itself, and finds the others there.

When a rank shuts Horovod down, it is down on all of them: a rank that has returned waits for the others before that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.train import rendezvous
from holdfast.train.checks import check_number, warn_once
from holdfast.train.config import BackendConfig
from holdfast.train.horovod.horovod_store import served_store
from holdfast.train.torchrun import variables

if TYPE_CHECKING:
    from holdfast.worker.session import Session

_FRAMEWORKS = ("horovod.torch", "horovod.tensorflow")
# What torch imports only on the first use of an optimizer or torch.save, the slowest last.
_OF_TORCH = ("torch.optim", "torch.utils.data", "torch.utils.serialization.config", "torch._dynamo")


def _built() -> tuple[str, ...]:
    """The first framework that the installed Horovod was built for. It is found by its library file, because importing
    the others is slow and prints warnings."""
    spec = find_spec("horovod")
    roots = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    names = [name for name in _FRAMEWORKS for root in roots if any((root / name[8:]).glob("mpi_lib*.so"))]
    return tuple(names[:1])


@dataclass
class HorovodConfig(BackendConfig):
    """How workers form a Horovod job. ``nics``: the network interface to use; by default the loopback one if all
    workers are on one machine, else the one that has the host's name. ``timeout_s``: how long workers wait for each
    other. The other arguments exist for scripts for Ray and have no effect: workers are not started through ssh."""

    nics: Sequence[str] | set[str] | None = None
    verbose: int = 1
    key: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100

    essential: ClassVar[tuple[str, ...]] = _built()
    preload: ClassVar[tuple[str, ...]] = _OF_TORCH if "horovod.torch" in essential else ()
    preload_early: ClassVar[bool] = bool(preload)  # each rank's optimizer needs them

    def __post_init__(self) -> None:
        if isinstance(self.nics, str):
            raise TypeError(f"HorovodConfig(nics={self.nics!r}): pass a set of names, as in {{{self.nics!r}}}")
        check_number("HorovodConfig(timeout_s", self.timeout_s, least=1)
        for name in ("key", "ssh_port", "ssh_identity_file", "ssh_str"):
            if getattr(self, name) is not None:
                reason = "Holdfast starts workers without ssh"
                warn_once(f"HorovodConfig({name})", f"HorovodConfig({name}) has no effect: {reason}.", stacklevel=4)

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InJob(self, train_fn)

    def to_dict(self) -> dict[str, Any]:
        """What ``restore`` needs; never a secret."""
        return {"nics": sorted(self.nics) if self.nics else None, "timeout_s": self.timeout_s}


class _InJob:
    """Calls a train function in the environment of a Horovod job."""

    def __init__(self, config: HorovodConfig, train_fn: Callable[..., Any]) -> None:
        self.config, self.train_fn = config, train_fn

    def __call__(self, *args: Any) -> Any:
        from holdfast.train.api import session_for

        session = session_for("horovod.HorovodTrainer")
        with ExitStack() as stack:
            stack.enter_context(rendezvous.environment(job_variables(session, self.config)))
            stack.enter_context(_meeting_point(session))
            try:
                result = self.train_fn(*args)
            except BaseException:
                # Peers may be dead: leave by exiting, without waiting for them.
                if session.world_size == 1:
                    _shut_down()
                raise
            _await_others()
            stack.callback(_shut_down)
            session.at_end(stack.pop_all().close)  # threads of the function may still use Horovod
            return result


def job_variables(session: Session, config: HorovodConfig) -> dict[str, str]:
    """What Horovod reads about this worker. ``CROSS``: the workers with the same local rank, one of each node."""
    places = rendezvous.gather(session, (session.node_rank, session.local_rank))
    nodes = sorted(node for node, local_rank in places if local_rank == session.local_rank)
    wanted: dict[str, Any] = {
        "HOROVOD_RANK": session.rank,
        "HOROVOD_SIZE": session.world_size,
        "HOROVOD_LOCAL_RANK": session.local_rank,
        "HOROVOD_LOCAL_SIZE": session.local_world_size,
        "HOROVOD_CROSS_RANK": nodes.index(session.node_rank),
        "HOROVOD_CROSS_SIZE": len(nodes),
        "HOROVOD_HOSTNAME": f"node-{session.node_rank}",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": int(config.timeout_s),
    }
    if config.nics:
        wanted["HOROVOD_GLOO_IFACE"] = min(config.nics)
        wanted["NCCL_SOCKET_IFNAME"] = ",".join(sorted(config.nics))
    elif interface := variables(session).get("GLOO_SOCKET_IFNAME"):
        wanted["HOROVOD_GLOO_IFACE"] = interface
    return {name: str(value) for name, value in wanted.items()}


@contextmanager
def _meeting_point(session: Session) -> Iterator[None]:
    """Rank 0 serves the store while the train function runs: process sets that are added later need it too."""
    with ExitStack() as stack:
        place = None
        if session.world_size == 1:
            yield
            return
        if session.rank == 0:
            place = (session.address, stack.enter_context(served_store(session.address)))
        host, port = rendezvous.from_rank_zero(session, place)
        found = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": host, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
        with rendezvous.environment(found):
            yield


def _initialized() -> Iterator[Any]:
    """Those of Horovod's modules that the train function has initialized, and not shut down."""
    for name in _FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None and module.is_initialized():
            yield module


def _await_others() -> None:
    for hvd in _initialized():
        with suppress(Exception):  # another rank has shut Horovod down or was killed; this rank has already returned
            getattr(hvd, "barrier", hvd.join)()


def _shut_down() -> None:
    for hvd in _initialized():
        hvd.shutdown()
