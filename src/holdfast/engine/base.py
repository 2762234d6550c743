"""What the driver asks of an engine: nodes, each with an agent that it can talk to.

An engine puts what its agents say into the driver's inbox, as (node id, message), from whatever thread it likes.
When an agent is gone, with all processes below it, the engine says ``NodeLost`` for it.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.wire.messages import Configure, Message

T = TypeVar("T")
Inbox = queue.SimpleQueue[Any]


class Engine(Protocol):
    def check(self, gpus: float) -> None:
        """Raise a ValueError that names the remedy if the workers can never get what they ask for."""

    def open(self, configure: Configure, inbox: Inbox) -> None:
        """Start the nodes. Each says ``NodeReady`` when it can be used."""

    def send(self, node_id: str, message: Message) -> None:
        """Never blocks for long and never raises for a node that is gone: its ``NodeLost`` is on the way."""

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        """Call ``run``, the driver's loop, in the thread that suits the engine; pass on an interrupt that it gets."""

    def close(self) -> None:
        """End everything. No process of the engine is left when this returns."""
