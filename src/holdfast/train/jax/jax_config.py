"""``jax.distributed`` around a train function: initialized before it, shut down after it, left alone after a failure.

Rank 0 runs the coordinator, on a port that is held until it listens there; each attempt has its own coordinator.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.train import rendezvous
from holdfast.train.config import BackendConfig
from holdfast.train.integrations import present

if TYPE_CHECKING:
    from holdfast.worker.session import Session

# What JAX imports only when it compiles for the first time.
_OF_COMPILER = present("jaxlib.mlir.dialects.mhlo", "jaxlib.mlir.dialects.builtin")


@dataclass
class JaxConfig(BackendConfig):
    """How workers form one JAX program. ``JAX_PLATFORMS`` chooses the platform; without it, ``use_tpu`` or ``use_gpu``
    does. Otherwise it is the CPU, with gloo between the processes."""

    use_tpu: bool = False
    use_gpu: bool = False

    essential: ClassVar[tuple[str, ...]] = ("jax",)
    preload: ClassVar[tuple[str, ...]] = ("jax.numpy", "jax.experimental.multihost_utils", *_OF_COMPILER)

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InProgram(self, train_fn)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class _InProgram:
    """Calls a train function in a process of one JAX program."""

    def __init__(self, config: JaxConfig, train_fn: Callable[..., Any]) -> None:
        self.config, self.train_fn = config, train_fn

    def __call__(self, *args: Any) -> Any:
        import jax

        from holdfast.train.api import session_for

        session = session_for("jax.JaxTrainer")
        # JAX read the variable when it was imported, perhaps before the worker was forked.
        jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS") or self._platform(session))
        if session.world_size == 1:
            return self.train_fn(*args)
        if session.rank == 0:
            with rendezvous.held_port(session) as port:
                self._join(session, rendezvous.from_rank_zero(session, rendezvous.address(session, port)))
        else:
            coordinator = rendezvous.from_rank_zero(session, None)
            rendezvous.await_server(coordinator)
            self._join(session, coordinator)
        # After an exception peers may be dead: leave by exiting, without waiting for them.
        result = self.train_fn(*args)
        jax.distributed.shutdown()
        return result

    def _platform(self, session: Session) -> str:
        if self.config.use_tpu:
            return "tpu"
        return "cuda" if self.config.use_gpu or session.devices else "cpu"

    def _join(self, session: Session, coordinator: str) -> None:
        import jax

        jax.distributed.initialize(
            coordinator,
            num_processes=session.world_size,
            process_id=session.rank,
            local_device_ids=list(session.devices) or None,
            coordinator_bind_address=coordinator if session.rank == 0 else None,  # else it would be all interfaces
            initialization_timeout=int(rendezvous.MEET_WITHIN_S),
        )
