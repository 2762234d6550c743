"""From the lease to the machine's first step: nodes come, and what an earlier driver left on them is brought home."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import structs

from holdfast.core.run import events as ev
from holdfast.wire import messages as wire

from .adoption import Adoption
from .desk import Desk
from .remote_storage import RemoteStorage

NODES_JOIN = "nodes join"  # a timer of the driver's own: nodes that are there at the start are waited for
_NODES_JOIN_WITHIN_S = 10.0


class Beginning:
    def __init__(self, desk: Desk, work_off: Callable[[], None]) -> None:
        self._desk, self._work_off = desk, work_off
        self._adoption: Adoption | None = None
        self._found: list[ev.Event] | None = None  # what an earlier driver left, when that is known
        self.is_over = False
        self.left_on_nodes = False  # something that an earlier driver had there, for the next one

    def start(self, hear_first: Callable[[], None]) -> None:
        """``hear_first`` takes in what the engine has said at once: which nodes are on their way."""
        desk = self._desk
        self._since = time.monotonic()
        if desk.fleet.grows:
            desk.timers[NODES_JOIN] = time.monotonic() + _NODES_JOIN_WITHIN_S
        if isinstance(desk.storage, RemoteStorage):
            self._work_off()  # what was found in storage is known before nodes say what they have
            self._adoption = Adoption(
                desk.fleet, desk.storage, desk.past, desk.state.durable, self._took_stock, desk.warn
            )
        else:
            hear_first()
            self._took_stock([])

    def heard_of_a_node(self) -> None:
        if self._found is not None:
            self._took_stock(self._found)

    def take_over(self, node: wire.NodeReady) -> None:
        """What a node has that is not in storage, as far as it knows."""
        desk = self._desk
        if self._adoption is not None:
            self._found = None
            self._adoption.begin(node.node_id, node.unsaved, node.left)
        elif not self.left_on_nodes:
            desk.fleet.sort_out(node.unsaved, desk.stored())

    def sealed(self, message: wire.Sealed) -> bool:
        """Whether it was something that an earlier driver left."""
        return self._adoption is not None and self._adoption.sealed(message)

    def uploaded(self, node: str, generation: int, index: int, error: str) -> bool:
        """Whether it was something that an earlier driver left."""
        return self._adoption is not None and self._adoption.uploaded(node, generation, index, error)

    def staged_lost(self, node: str, id: str, why: str) -> bool:
        """Whether it was something that an earlier driver left."""
        return self._adoption is not None and self._adoption.staged_lost(node, id, why)

    def node_lost(self, node: str) -> None:
        if self._adoption is not None and not self._desk.fleet.keeps_files:  # else another agent does that
            self._adoption.node_lost(node)

    def time_is_up(self) -> None:
        """Nodes are long in coming. What one that is there has is still brought into storage first."""
        desk = self._desk
        if self._found is None and (desk.fleet.roster.ids or (self._adoption is not None and self._adoption.is_busy)):
            desk.timers[NODES_JOIN] = time.monotonic() + _NODES_JOIN_WITHIN_S
            return
        self._go_without_the_rest()

    def cut_short(self) -> None:
        """The run is to stop before it has begun. What is on nodes stays there for the next driver."""
        self.left_on_nodes = True
        self._end()

    def _took_stock(self, found: list[ev.Event]) -> None:
        """What an earlier driver left is known; nodes that are on their way are waited for."""
        self._found = found
        if not self.is_over and (self._desk.fleet.roster.is_settled or not self._desk.fleet.grows):
            self._go_without_the_rest()

    def _go_without_the_rest(self) -> None:
        given_up = self._adoption is not None and self._adoption.give_up_the_rest()
        self.left_on_nodes = self._found is None or given_up
        self._end()

    def _end(self) -> None:
        """The machine takes over."""
        desk = self._desk
        self.is_over, self._adoption = True, None
        desk.timers.pop(NODES_JOIN, None)
        desk.queue.extend(self._found or [])
        if isinstance(desk.storage, RemoteStorage):
            desk.storage.collect(keep=desk.stored())
            if not self.left_on_nodes:
                desk.fleet.tell(wire.Sweep(desk.state.generation))
        if desk.fleet.grows:
            desk.queue.append(ev.Capacity(desk.fleet.slots()))
        spec = structs.replace(desk.plan.spec, lease_s=desk.fleet.lease_s)
        clear = tuple(desk.fleet.roster.clear_among(desk.state.durable.leases))
        desk.queue.append(ev.DriverStarted(desk.epoch, spec, clear, time.monotonic() - self._since))
        if desk.plan.on_report is not None:
            for late in desk.storage.late_reports():  # before an attempt of this driver makes others
                desk.plan.on_report(*late)
        self._work_off()
