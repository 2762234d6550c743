"""Orders that nodes have not carried out yet. None is forgotten when a node is lost: an order belongs to the node that
has the files, and is sent again when that node comes back. On a disk that all nodes reach, any node can carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from holdfast.core.run.staged_files import ON_SHARED_DISK, StagedFiles
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Pressure

from .effects import Effect, Send
from .node_registry import NodeRegistry

Report = tuple[int, int]  # (attempt, index)
_NOBODY = ""  # stands for the node of an order that any node may carry out, while there is no node


class Kind(IntEnum):  # which is hashed without a call: of ten thousand ranks, each has orders
    SEAL = 1  # about (attempt, rank, index)
    GATHER = 2  # about a report
    UPLOAD = 3  # about a report
    FETCH = 4  # about a checkpoint's id
    TASK = 5  # about its name


class Outbox:
    def __init__(
        self,
        nodes: NodeRegistry,
        emit: Callable[[Effect], None],
        files: StagedFiles = ON_SHARED_DISK,
        keeps_files: bool = False,
    ) -> None:
        """``keeps_files``: a lost node comes back with its files."""
        self._nodes, self._emit = nodes, emit
        self._files, self._keeps_files = files, keeps_files
        self._for_any = {Kind.TASK} if files.are_with_node else {Kind.TASK, Kind.SEAL}  # orders that any node can take
        self._orders: dict[tuple[str, Kind, Any], wire.Message] = {}  # by node, kind and subject
        self._owners: dict[tuple[Kind, Any], set[str]] = {}  # the nodes of those, by kind and subject
        self._fetches: dict[str, wire.Fetch] = {}
        self._fetched = 0  # how many were asked for
        self._stalled = False

    def send(self, node: str, message: wire.Message) -> None:
        self._emit(Send(node, message))

    def tell(self, message: wire.Message) -> None:
        for node in self._nodes.ids:
            self._emit(Send(node, message))

    def order(self, node: str, kind: Kind, about: Any, order: wire.Message) -> None:
        self.order_together(node, kind, {about: order}, order)

    def order_together(self, node: str, kind: Kind, orders: Mapping[Any, wire.Message], message: wire.Message) -> None:
        """Several orders in one message. They become separate if they are sent again, or go to other nodes because
        theirs is lost."""
        if node != _NOBODY and kind in self._for_any and node not in self._nodes.ids:
            for about, order in orders.items():
                self.order_any(kind, about, order)
            return
        for about, order in orders.items():
            self._orders[node, kind, about] = order
            self._owners.setdefault((kind, about), set()).add(node)
        if node != _NOBODY:
            self.send(node, message)

    def order_any(self, kind: Kind, about: Any, order: wire.Message) -> None:
        """Let any node carry it out, as soon as there is a node."""
        self.order(next(iter(self._nodes.usable()), _NOBODY), kind, about, order)

    def finish(self, kind: Kind, about: Any, node: str | None = None) -> bool:
        """Forget an order that was carried out. Returns whether it was still open."""
        owners = self._owners.get((kind, about), ())
        found = [owner for owner in owners if node is None or node == owner]
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

    # Nodes that join and leave

    def node_ready(self, node: str) -> None:
        """The node gets the open orders."""
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
        """The reports whose files the node had and storage lacks, if the node does not come back with them."""
        left_with: set[Report] = set()
        for owner, kind, about in [key for key in self._orders if key[0] == node]:
            if kind in (Kind.UPLOAD, Kind.GATHER):
                left_with.add(about)
            elif kind is Kind.SEAL:
                left_with.add((about[0], about[2]))
            if kind in self._for_any:
                self.order_any(kind, about, self._drop(owner, kind, about))
            elif kind is Kind.FETCH or not self._keeps_files:
                self._drop(owner, kind, about)
        for id, fetch in self._fetches.items():
            if not self.holders(Kind.FETCH, id):
                self._fetch_everywhere(id, fetch)  # the node that has it answers immediately
        return sorted(left_with) if self._files.are_with_node and not self._keeps_files else []

    # Orders for all nodes

    def fetch(self, id: str, manifest: bytes, stored: bool = True) -> None:
        """Have a checkpoint verified on the nodes where workers may read it. ``stored``: missing files can be
        downloaded."""
        self._fetched += 1
        self._fetches[id] = wire.Fetch(id, manifest, stored, self._fetched)
        self._fetch_everywhere(id, self._fetches[id])

    def _fetch_everywhere(self, id: str, fetch: wire.Fetch) -> None:
        for node in self._nodes.usable():
            self.order(node, Kind.FETCH, id, fetch)

    def take_fetched(self, node: str, id: str, number: int, failed: bool) -> bool:
        """Whether this answer is decisive: a node has failed, or it was the last answer. Answers to an earlier question
        about the same checkpoint may still arrive; at that time perhaps not all of it was in storage."""
        if id not in self._fetches or self._fetches[id].number != number:
            return False
        self.finish(Kind.FETCH, id, node)
        if not failed and self.holders(Kind.FETCH, id):
            return False
        self.finish(Kind.FETCH, id)
        del self._fetches[id]
        return True

    def forget_staged(self, attempt_number: int, index: int, id: str) -> None:
        """Let nodes remove their files of a report. Files that all nodes reach are removed by storage."""
        if self._files.are_with_node:
            self.tell(wire.Forget(attempt_number, index, id))

    def stall(self, on: bool) -> None:
        self._stalled = on
        self.tell(Pressure(on))

    def run_task(self, task: str, payload: bytes, timeout_s: float | None) -> None:
        """Start a task on a node, beside the workers."""
        self.order_any(Kind.TASK, task, wire.RunTask(task, payload, timeout_s))
