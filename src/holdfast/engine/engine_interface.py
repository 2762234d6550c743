"""What the driver needs from an engine: nodes, each with an agent that it can talk to.

An engine puts the messages of its agents into the driver's inbox, as (node id, message), from any thread. It adds its
own: ``NodeJoining`` when it starts an agent, ``NodeDraining`` when a node will be removed, and ``NodeLost`` when an
agent and all processes below it have exited, or when it is cut off and has surely ended them. For one node, these come
in the order ``NodeJoining``, ``NodeReady``, perhaps ``NodeDraining``, ``NodeLost``, and so on again if the node comes
back; a node that is lost while it joins was never ready.
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
        """The driver has received the ``NodeReady`` of this agent. Messages to a node reach the accepted agent or none:
        an order for the previous agent must not be carried out by its successor."""

    def send(self, node_id: str, message: Message) -> None:
        """Send a message. This never blocks for long, and does not raise for a lost node: its ``NodeLost`` will
        follow."""

    def close(self) -> None:
        """End everything. No process of the run is left when this returns."""


class GrantedSeat(Seat, frozen=True, tag=True):
    """Resources for one bundle of the request with that key."""

    key: str = ""
    bundle: int = 0


@runtime_checkable
class Granting(Protocol):
    """A session without resources at first: it requests them from a cluster when told to. Both methods may be called at
    any time, and return immediately."""

    def reserve(
        self,
        key: str,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        labels: Sequence[Mapping[str, str]],
    ) -> None:
        """Request resources for all these bundles, until they are given back. They arrive as seats of the nodes."""

    def give_back(self, key: str) -> None: ...


class Engine(Protocol):
    grows: bool  # whether nodes may join and leave, so that an attempt may lack capacity
    is_this_machine: bool  # whether its only node is this machine: a lost node comes back with its files

    def check(self, gpus: float) -> None:
        """Raise a ValueError that names the remedy if the workers can never get the resources that they request."""

    def open(self, configure: Configure, inbox: Inbox) -> EngineSession:
        """Start an agent on each node. Each says ``NodeReady`` when it can be used."""

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        """Call ``run``, the driver's loop, in the thread that suits the engine; pass on an interrupt that it gets."""
