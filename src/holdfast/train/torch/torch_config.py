"""The process group around a train function: formed before it, ended after it, never waited for after a failure.

Rank 0 listens on a port that the system picks and tells the others through the session, so no other process can take
the port in between, and a new attempt cannot meet an old one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.train.checks import check_number
from holdfast.train.config import BackendConfig
from holdfast.train.integrations import present
from holdfast.train.rendezvous import environment
from holdfast.train.standby_variables import variables_of

if TYPE_CHECKING:
    from holdfast.worker.session import Session


# What torch imports only on the first use of DDP, an optimizer or torch.save, the slowest last. Importing these starts
# no thread and does not touch CUDA, so a process that has imported them can still be forked.
PRELOAD = present(
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks",  # for Lightning and Accelerate
    "torch.optim",
    "torch.utils.data",
    "torch.utils.serialization.config",
    "torch.profiler._cupti_monitor",
    "torch._dynamo",
)

_ALL_FORMED, _ALL_SEEN = "all formed", "all seen"


@dataclass
class TorchConfig(BackendConfig):
    """How workers form their process group.

    ``backend=None`` means nccl on GPUs, otherwise gloo. ``init_method`` "env" and "tcp" do the same: the group always
    forms over a store that Holdfast sets up.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800

    essential: ClassVar[tuple[str, ...]] = ("torch",)
    preload: ClassVar[tuple[str, ...]] = PRELOAD
    preload_early: ClassVar[bool] = True  # each rank's first step with DDP needs them
    joins_torchrun: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.backend is not None and (not isinstance(self.backend, str) or not self.backend):
            raise TypeError(f'TorchConfig(backend={self.backend!r}): pass a name, as in "gloo" or "nccl", or None')
        if self.init_method not in ("env", "tcp"):
            raise ValueError(f'TorchConfig(init_method={self.init_method!r}): use "env" or "tcp"')
        check_number("TorchConfig(timeout_s", self.timeout_s, above=0)

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InProcessGroup(self, train_fn)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class _InProcessGroup:
    """Calls a train function inside a process group."""

    def __init__(self, config: TorchConfig, train_fn: Callable[..., Any]) -> None:
        self.config = config
        self.train_fn = train_fn

    def __call__(self, *args: Any) -> Any:
        import torch.distributed as dist

        from holdfast.train.api import session_for

        if dist.is_initialized():
            return self.train_fn(*args)
        session = session_for("torch.TorchTrainer")
        with ExitStack() as stack:
            stack.enter_context(environment(_for_accelerate(session, self.config)))
            stack.enter_context(variables_of(session))
            # The name keeps rank 0's store, and with it the server, alive until the group is left.
            store = _form_group(session, self.config, stack)
            try:
                result = self.train_fn(*args)
            except BaseException:
                # Peers may be dead or inside a collective: leave by exiting, without waiting for them.
                if session.world_size == 1 and dist.is_initialized():
                    dist.destroy_process_group()
                raise
            stack.callback(_leave_group, session, store)
            session.at_end(stack.pop_all().close)  # threads of the function may still use the group
            return result


def _for_accelerate(session: Session, config: TorchConfig) -> dict[str, str]:
    """What Accelerate, and with it the Trainer of Transformers, reads. On CPUs it ignores the group, and each worker
    trains alone, unless it is told to use them."""
    if session.devices:
        return {"ACCELERATE_TORCH_DEVICE": f"cuda:{session.devices[0]}"}
    found = {"ACCELERATE_TORCH_DEVICE": "cpu"}
    if config.backend in (None, "gloo", "mpi") and "ACCELERATE_USE_CPU" not in os.environ:
        found["ACCELERATE_USE_CPU"] = "true"
    return found


def _leave_group(session: Session, store: Any) -> None:
    import torch.distributed as dist

    if session.rank == 0 and store is not None:
        store.wait([_ALL_SEEN])
    if dist.is_initialized():
        dist.destroy_process_group()


def _form_group(session: Session, config: TorchConfig, stack: ExitStack) -> Any:
    import torch
    import torch.distributed as dist

    from holdfast.platform.sockets import open_sockets
    from holdfast.train.torch import live_group

    timeout = timedelta(seconds=config.timeout_s)
    backend = config.backend or ("nccl" if session.devices else "gloo")
    if session.devices:
        torch.cuda.set_device(session.devices[0])
    session.group_timeout_s = config.timeout_s
    if session.joins or not session.place.is_known:
        return _stay_alone(session)
    if session.is_launched:
        dist.init_process_group(backend, timeout=timeout)
        return None
    host, port, store = None, 0, None
    if session.rank == 0:
        host, port, store = serve_store(session, timeout)
    if session.world_size > 1:
        host, port = session.request("broadcast", (host, port), config.timeout_s)
    if store is None:
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)
    stack.enter_context(environment({"MASTER_ADDR": str(host), "MASTER_PORT": str(port)}))
    before = open_sockets()
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(f"gen{session.attempt_number}", store),
        rank=session.rank,
        world_size=session.world_size,
        timeout=timeout,
    )
    live_group.remember_sockets(before)
    _await_all_formed(session, store)
    return store


def _stay_alone(session: Session) -> None:
    """This worker takes the place of a lost one: its peers train, and it joins them in ``TrainState.resume()``."""
    from holdfast.train.torch import live_group

    if session.place.is_known:
        live_group.install(live_group.LiveGroup(session.rank, session.world_size, None))
    else:
        live_group.StandbyGroup(session.world_size, session.place).install()


def _await_all_formed(session: Session, store: Any) -> None:
    """A train function may return immediately, but the store must not disappear while a slower peer still connects to
    it. Rank 0, which serves the store, stays until all ranks have connected (see ``_InProcessGroup``)."""
    if store.add("formed", 1) == session.world_size:
        store.set(_ALL_FORMED, "")
    store.wait([_ALL_FORMED])
    if store.add("seen", 1) == session.world_size:
        store.set(_ALL_SEEN, "")


def serve_store(session: Session, timeout: timedelta) -> tuple[str, int, Any]:
    """A store on our own socket: bound to loopback on one machine, which the store itself would not do."""
    import torch.distributed as dist

    host = session.address
    with socket.create_server((host, 0), backlog=session.world_size + 16) as server:
        port = server.getsockname()[1]
        store = dist.TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=server.fileno()
        )
        server.detach()
    return host, port, store
