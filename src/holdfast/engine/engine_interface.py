"""What the driver asks of an engine: nodes, each with an agent that it can talk to.

An engine puts what its agents say into the driver's inbox, as (node id, message), from whatever thread it likes. It
says itself: ``NodeJoining`` when it starts an agent, ``NodeDraining`` when a node will go away, and ``NodeLost`` when
an agent is gone with all processes below it, or is cut off and has surely ended them. Of a node, these come in the
order ``NodeJoining``, ``NodeReady``, maybe ``NodeDraining``, ``NodeLost``, and so on again if the node comes back; one
that is lost while it joins was never ready.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from holdfast.wire.message import Message
from holdfast.wire.messages import Configure, Seat

T = TypeVar("T")
Inbox = queue.SimpleQueue[Any]


class EngineSession(Protocol):
    """The nodes of one run."""

    def accept(self, node_id: str, pid: int) -> None:
        """The driver has taken in the ``NodeReady`` of this agent. What is sent to a node reaches the accepted agent or
        none: an order that was meant for the one before must not be carried out by its successor."""

    def send(self, node_id: str, message: Message) -> None:
        """Never blocks for long and never raises for a node that is gone: its ``NodeLost`` is on the way."""

    def close(self) -> None:
        """End everything. No process of the run is left when this returns."""


class GrantedSeat(Seat, frozen=True, tag=True):
    """Room for one bundle of what was asked for with that key."""

    key: str = ""
    bundle: int = 0


@runtime_checkable
class Granting(Protocol):
    """A session that has no room by itself: it asks a cluster for what it is told to. Both may be called at any time,
    and return at once."""

    def reserve(
        self,
        key: str,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        labels: Sequence[Mapping[str, str]],
    ) -> None:
        """Ask for room for all these bundles, until it is given back. It comes as seats of the nodes."""

    def give_back(self, key: str) -> None: ...


class Engine(Protocol):
    grows: bool  # whether nodes come and go, so that there may be too little room for a group
    is_this_machine: bool  # whether its only node is this machine: one that is lost comes back, with its files

    def check(self, gpus: float) -> None:
        """Raise a ValueError that names the remedy if the workers can never get what they ask for."""

    def open(self, configure: Configure, inbox: Inbox) -> EngineSession:
        """Start an agent on each node. Each says ``NodeReady`` when it can be used."""

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        """Call ``run``, the driver's loop, in the thread that suits the engine; pass on an interrupt that it gets."""
