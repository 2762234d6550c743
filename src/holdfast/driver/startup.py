"""From the lease to the first step of the core: nodes join, and the leftovers of an earlier driver are collected."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from holdfast.core.run import events as ev
from holdfast.core.run.salvage import NODES_JOIN_WITHIN_S, starts_without
from holdfast.wire import messages as wire

from .adoption import Adoption
from .driver_state import DriverState
from .effects import AdoptedHere, Collect, Lacking, TellLateReports

NODES_JOIN = "nodes join"  # a timer of the driver: how long to wait for the nodes at the start


class Startup:
    def __init__(self, known: DriverState, work_off: Callable[[], None]) -> None:
        self._known, self._work_off = known, work_off
        self._adopter: Adoption | None = None  # kept when the start no longer waits for it
        self._adoption: Adoption | None = None
        self._found: list[ev.Event] | None = None  # the leftovers of an earlier driver, when they are known
        self.is_over = False
        self.left_on_nodes = False  # nodes have something of an earlier driver that the next driver needs

    def begin(self) -> None:
        """The nodes are asked for."""
        known = self._known
        self._since = known.now.monotonic
        if known.site.grows:
            known.timers[NODES_JOIN] = self._since + NODES_JOIN_WITHIN_S
        if known.plan.spec.files.outlive_driver:
            self._work_off()  # the content of storage is known before nodes report theirs
            told = (known.past, known.run.durable, known.now.wall, self._took_stock, known.warn)
            self._adopter = self._adoption = Adoption(known.shards, known.emit, *told)

    def nodes_announced(self) -> None:
        """The nodes that are joining are known."""
        if self._adopter is None:
            self._took_stock([])

    def heard_of_a_node(self) -> None:
        if self._found is not None:
            self._took_stock(self._found)

    def take_over(self, node: wire.NodeReady) -> None:
        """The files of a node that are not in storage, as far as it knows."""
        known = self._known
        if self._adoption is not None:
            self._found = None
            self._adoption.begin(node.node_id, node.unsaved, node.left)
        elif not self.left_on_nodes:
            known.shards.sort_out(node.unsaved, known.stored())

    def sealed(self, message: wire.Sealed) -> bool:
        """Whether the message was about something that an earlier driver left."""
        return self._adoption is not None and self._adoption.sealed(message)

    def uploaded(self, node: str, attempt_number: int, index: int, error: str) -> bool:
        """Whether the message was about something that an earlier driver left."""
        return self._adoption is not None and self._adoption.uploaded(node, attempt_number, index, error)

    def staged_lost(self, node: str, id: str, why: str) -> bool:
        """Whether the message was about something that an earlier driver left."""
        return self._adoption is not None and self._adoption.staged_lost(node, id, why)

    def node_lost(self, node: str) -> None:
        if self._adoption is not None and not self._known.site.keeps_files:  # otherwise another agent does it
            self._adoption.node_lost(node)

    def time_is_up(self) -> None:
        """The time for nodes to join is over. Files of the nodes that have joined are still uploaded first."""
        known = self._known
        is_busy = self._adoption is not None and self._adoption.is_busy
        if starts_without(self._found is not None, bool(known.nodes.ids), is_busy):
            self._go_without_the_rest()
        else:
            known.timers[NODES_JOIN] = known.now.monotonic + NODES_JOIN_WITHIN_S

    def cut_short(self, stop: ev.StopAsked) -> None:
        """The run must stop before it has started. Files on nodes stay there for the next driver."""
        self.left_on_nodes = True
        self._end(stop)

    def _took_stock(self, found: list[ev.Event]) -> None:
        """The leftovers of an earlier driver are known; nodes that are joining are waited for."""
        self._found = found
        if not self.is_over and (self._known.nodes.is_settled or not self._known.site.grows):
            self._go_without_the_rest()

    def _go_without_the_rest(self) -> None:
        given_up = self._adoption is not None and self._adoption.give_up_the_rest()
        self.left_on_nodes = self._found is None or given_up
        self._end()

    def _end(self, stop: ev.StopAsked | None = None) -> None:
        """Let the core take over."""
        known = self._known
        self.is_over, self._adoption = True, None
        known.timers.pop(NODES_JOIN, None)
        known.queue.extend(self._found or [])
        known.effects.append(TellLateReports())  # before an attempt of this driver makes others
        known.effects.append(Collect(known.stored()))
        if self._adopter is not None and not self.left_on_nodes:
            known.outbox.tell(wire.Sweep(known.run.attempt_number))
        known.tell_of_room()
        spec = structs.replace(known.plan.spec, lease_s=known.site.lease_s)
        clear = tuple(known.nodes.clear_among(known.run.durable.leases))
        since_s, stops = known.now.monotonic - self._since, stop is not None
        known.queue.append(ev.DriverStarted(known.epoch, spec, clear, since_s, stops))
        known.queue.extend(filter(None, [stop]))
        self._work_off()

    def take_adopted(self, answer: AdoptedHere | Lacking) -> None:
        """Storage has looked at something that an earlier driver left."""
        assert self._adopter is not None
        if isinstance(answer, AdoptedHere):
            self._adopter.take_committed(*answer)
        else:
            self._adopter.take_lacking(*answer)
