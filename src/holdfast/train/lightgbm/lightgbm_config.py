"""LightGBM's network around a train function: the address of every worker, which ``lightgbm.train`` connects by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from holdfast.train import rendezvous
from holdfast.train.config import BackendConfig

_network: dict[str, Any] = {}


class LightGBMConfig(BackendConfig):
    """How workers form LightGBM's network. There is nothing to choose."""

    essential: ClassVar[tuple[str, ...]] = ("lightgbm",)

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        return _InNetwork(train_fn)


class _InNetwork:
    """Calls a train function that can ask for the parameters of the network."""

    def __init__(self, train_fn: Callable[..., Any]) -> None:
        self.train_fn = train_fn

    def __call__(self, *args: Any) -> Any:
        from holdfast.train.api import session_for

        session = session_for("lightgbm.LightGBMTrainer")
        if session.world_size > 1:
            # LightGBM does not share its port, so nothing can hold it until LightGBM listens there.
            port = rendezvous.free_port(session)
            machines = rendezvous.gather(session, f"{session.address}:{port}")
            _network.update(num_machines=len(machines), local_listen_port=port, machines=",".join(machines))
        try:
            return self.train_fn(*args)
        finally:
            _network.clear()


def get_network_params() -> dict[str, Any]:
    """The parameters with which ``lightgbm.train`` trains one model on the data of all workers; none with one."""
    from holdfast.train.api import session_for

    session_for("lightgbm.get_network_params")
    return dict(_network)
