"""What nodes were asked for and have not done yet: with a lost node none of that is forgotten.

An order belongs to the node that has what it is about, and is given again when that node comes back. On a disk that all
nodes reach, any of them can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Pressure

from .effects import Effect, Send
from .node_registry import NodeRegistry

Report = tuple[int, int]  # (attempt, index)
_NOBODY = ""  # the node of an order that any node may carry out, and none is there


class Kind(Enum):
    SEAL = "seal"  # about (attempt, rank, index)
    GATHER = "gather"  # about a report
    UPLOAD = "upload"  # about a report
    FETCH = "fetch"  # about a checkpoint's id
    TASK = "task"  # about its name


class Outbox:
    def __init__(
        self,
        nodes: NodeRegistry,
        emit: Callable[[Effect], None],
        nodes_hold_files: bool = False,
        keeps_files: bool = False,
    ) -> None:
        """``nodes_hold_files``: each has what its workers staged for itself. ``keeps_files``: a node that is lost comes
        back with them."""
        self._nodes, self._emit = nodes, emit
        self._nodes_hold_files, self._keeps_files = nodes_hold_files, keeps_files
        self._orders: dict[tuple[str, Kind, Any], wire.Message] = {}  # by node, kind and what they are about
        self._owners: dict[tuple[Kind, Any], set[str]] = {}  # the nodes of those, by kind and what they are about
        self._fetches: dict[str, wire.Fetch] = {}
        self._stalled = False

    def send(self, node: str, message: wire.Message) -> None:
        self._emit(Send(node, message))

    def tell(self, message: wire.Message) -> None:
        for node in self._nodes.ids:
            self._emit(Send(node, message))

    def order(self, node: str, kind: Kind, about: Any, order: wire.Message) -> None:
        self.order_together(node, kind, {about: order}, order)

    def order_together(self, node: str, kind: Kind, orders: Mapping[Any, wire.Message], message: wire.Message) -> None:
        """Several, which one message gives; each by itself if they are given again."""
        for about, order in orders.items():
            self._orders[node, kind, about] = order
            self._owners.setdefault((kind, about), set()).add(node)
        if node != _NOBODY:
            self.send(node, message)

    def order_any(self, kind: Kind, about: Any, order: wire.Message) -> None:
        """Have any node do it, as soon as there is one."""
        self.order(next(iter(self._nodes.usable()), _NOBODY), kind, about, order)

    def finish(self, kind: Kind, about: Any, node: str | None = None) -> bool:
        """Forget an order that is carried out; whether it was still open."""
        found = [owner for owner in self.holders(kind, about) if node in (None, owner)]
        for owner in found:
            self._drop(owner, kind, about)
        return bool(found)

    def holders(self, kind: Kind, about: Any) -> frozenset[str]:
        return frozenset(self._owners.get((kind, about), ()))

    def _drop(self, node: str, kind: Kind, about: Any) -> wire.Message:
        owners = self._owners[kind, about]
        owners.remove(node)
        if not owners:
            del self._owners[kind, about]
        return self._orders.pop((node, kind, about))

    # Nodes come and go

    def node_ready(self, node: str) -> None:
        """It takes over what is open."""
        for (owner, kind, about), order in list(self._orders.items()):
            if owner == _NOBODY:
                self._drop(owner, kind, about)
                self.order(node, kind, about, order)
            elif owner == node:
                self.send(node, order)
        for id, fetch in self._fetches.items():
            self.order(node, Kind.FETCH, id, fetch)
        if self._stalled:
            self.send(node, Pressure(True))

    def node_lost(self, node: str) -> list[Report]:
        """The reports of which it had what is not in storage, if that does not come back with it."""
        left_with: set[Report] = set()
        for owner, kind, about in [key for key in self._orders if key[0] == node]:
            if kind in (Kind.UPLOAD, Kind.GATHER):
                left_with.add(about)
            elif kind is Kind.SEAL:
                left_with.add((about[0], about[2]))
            if kind is Kind.TASK or (kind is Kind.SEAL and not self._nodes_hold_files):
                self.order_any(kind, about, self._drop(owner, kind, about))
            elif kind is Kind.FETCH or not self._keeps_files:
                self._drop(owner, kind, about)
        for id, fetch in self._fetches.items():
            if not self.holders(Kind.FETCH, id):
                self._fetch_everywhere(id, fetch)  # who has it says so at once
        return sorted(left_with) if self._nodes_hold_files and not self._keeps_files else []

    # What all nodes do

    def fetch(self, id: str, manifest: bytes, stored: bool = True) -> None:
        """Have a checkpoint verified where workers may read it. ``stored``: what a node lacks can be downloaded."""
        self._fetches[id] = wire.Fetch(id, manifest, stored)
        self._fetch_everywhere(id, self._fetches[id])

    def _fetch_everywhere(self, id: str, fetch: wire.Fetch) -> None:
        for node in self._nodes.usable():
            self.order(node, Kind.FETCH, id, fetch)

    def take_fetched(self, node: str, id: str, failed: bool) -> bool:
        """Whether that decides it: one has failed, or it was the last one."""
        if id not in self._fetches:
            return False
        self.finish(Kind.FETCH, id, node)
        if not failed and self.holders(Kind.FETCH, id):
            return False
        self.finish(Kind.FETCH, id)
        del self._fetches[id]
        return True

    def stall(self, on: bool) -> None:
        self._stalled = on
        self.tell(Pressure(on))

    def run_task(self, task: str, payload: bytes, timeout_s: float | None) -> None:
        """Beside the workers."""
        self.order_any(Kind.TASK, task, wire.RunTask(task, payload, timeout_s))
