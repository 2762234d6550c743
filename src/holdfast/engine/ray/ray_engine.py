"""The engine for clusters: an agent on each node on which Ray has granted resources for workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.engine.demand import Demand
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.ray.connection import connect
from holdfast.engine.ray.ray_session import RaySession
from holdfast.wire import messages as wire

T = TypeVar("T")


class RayEngine:
    """``demand`` is the request of one run: each run has its own engine, on the one connection of the script."""

    grows = True
    is_this_machine = False

    def __init__(self, demand: Demand) -> None:
        self.demand = demand

    def __repr__(self) -> str:
        return "RayEngine()"

    def check(self, gpus: float) -> None:
        """Nodes may join at any time; whether there is a cluster is known here."""
        connect()

    def open(self, configure: wire.Configure, inbox: Inbox) -> RaySession:
        connect()
        return RaySession(self.demand, configure, inbox)

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return run()  # the driver handles signals itself
