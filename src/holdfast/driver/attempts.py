"""The life of each attempt: on which nodes its ranks are, and on which of them processes may still live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import placement
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Place

from .node_registry import NodeRegistry
from .outbox import Outbox
from .site import Site

InPlace = Callable[[tuple[int, int], Mapping[str, Sequence[Place]], int], bool]


class Attempts:
    def __init__(self, nodes: NodeRegistry, outbox: Outbox, site: Site) -> None:
        self._nodes, self._outbox, self._site = nodes, outbox, site
        self._waiting: do.StartAttempt | None = None  # for a node
        self._homes: dict[int, dict[int, str]] = {}  # attempt -> rank -> node
        self._started: do.StartAttempt | None = None  # the last one
        self._places: dict[int, Place] = {}  # the nodes of its ranks
        self._left: dict[str, set[int]] = {}  # nodes of the last attempt from which ranks moved away -> those ranks
        self._standbys: dict[int, str] = {}  # standbys of the last attempt: their nodes, by number
        self._moving: set[int] = set()  # standbys that are reserved for ranks of nodes that will be removed
        self._busy: set[str] = set()  # nodes on which processes of the last attempt may live
        self._orders: Counter[str] = Counter()  # orders to start processes of the last attempt, by node
        self.is_being_read = False  # logs of a lost node are being read; the attempt has not ended before that

    @property
    def attempt_number(self) -> int:
        """The number of the last attempt that was started."""
        return max(self._homes, default=0)

    @property
    def homes(self) -> Mapping[int, str]:
        """The nodes of the last attempt, by rank."""
        return self._homes.get(self.attempt_number, {})

    def start(self, command: do.StartAttempt, is_in_place: InPlace | None = None, taken_by: int = 0) -> bool:
        """Start the attempt as soon as there is a node. False if it no longer fits, or if nodes lack what it resumes
        from."""
        placed = self._nodes.place(command.world_size, command.leased)
        is_room = sum(map(len, placed.values())) >= command.world_size
        if command.snapshot is not None:
            assert is_in_place is not None
            if not is_room or not is_in_place(command.snapshot, placed, command.world_size):
                return False
        if not is_room:
            self._waiting = None if self._site.grows else command
            return not self._site.grows
        self._waiting = None
        self._homes[command.attempt_number] = {place.rank: node for node, places in placed.items() for place in places}
        self._started, self._busy, self._left, self._standbys, self._moving = command, set(placed), {}, {}, set()
        self._orders = Counter(placed.keys())
        self._places = {place.rank: place for places in placed.values() for place in places}
        for node, places in placed.items():
            what = (command.attempt_number, command.world_size, command.base, command.resume, places)
            start = wire.StartWorkers(*what, self._nodes.address(node), 0, command.snapshot, taken_by)
            self._outbox.send(node, start)
        return True

    def start_standby(self, attempt_number: int, number: int, moves: bool) -> bool:
        """Start a standby where ranks are; for a rank that moves, on a node with capacity. False if there is no such
        node."""
        command, homes = self._started, self._homes.get(attempt_number, {})
        if command is None or command.attempt_number != attempt_number:
            return True  # the attempt ends
        ranks = [home for home in homes.values() if home in self._busy]
        node = placement.roomiest(self._free()) if moves else placement.standby_node(ranks, self._standbys.values())
        if node is None:
            return False
        self._standbys[number] = node
        self._busy.add(node)  # it ends with the attempt
        self._orders[node] += 1
        self._moving |= {number} if moves else set()
        what = (attempt_number, number, command.world_size, command.base, self._places[0].cpus)
        self._outbox.send(node, wire.StartStandby(*what, self._nodes.address(node)))
        return True

    def _free(self) -> dict[str, int]:
        moving = [self._standbys[number] for number in self._moving]
        return self._nodes.with_room(Counter([*self._homes.get(self.attempt_number, {}).values(), *moving]))

    def free_elsewhere(self) -> int:
        """How many more workers fit on nodes that stay."""
        return sum(self._free().values())

    def lose_standbys(self, node: str) -> list[int]:
        """The standbys of a lost node are lost with it."""
        lost = [number for number, home in self._standbys.items() if home == node]
        for number in lost:
            self.forget_standby(number)
        return lost

    def forget_standby(self, number: int) -> None:
        self._standbys.pop(number, None)
        self._moving.discard(number)

    def replace(self, attempt_number: int, rank: int, number: int, standby: int = 0) -> None:
        """Replace the process of a rank: by a standby, or by a process that is started now on the node of the lost
        one."""
        command, node = self._started, self.node_of(attempt_number, rank)
        if command is None or command.attempt_number != attempt_number:
            return
        if standby in self._standbys:
            target = self._standbys[standby]
            self.forget_standby(standby)
            if target != node:
                self._move(attempt_number, rank, node, target)
            order = wire.PromoteStandby(attempt_number, standby, self._places[rank], command.resume, number)
            self._outbox.send(target, order)
        elif not standby and node in self._nodes.ids:
            self._busy.add(node)
            self._orders[node] += 1
            what = (attempt_number, command.world_size, command.base, command.resume, [self._places[rank]])
            self._outbox.send(node, wire.StartWorkers(*what, address=self._nodes.address(node), joins=number))
        # otherwise the next message is the loss of the standby or node

    def _move(self, attempt_number: int, rank: int, before: str, node: str) -> None:
        homes = self._homes[attempt_number]
        there = [self._places[other].node_rank for other, home in homes.items() if home == node]
        node_rank = there[0] if there else 1 + max(place.node_rank for place in self._places.values())
        where = {"local_rank": len(there), "local_world_size": len(there) + 1, "node_rank": node_rank}
        self._places[rank] = structs.replace(self._places[rank], **where)
        homes[rank] = node
        self._left.setdefault(before, set()).add(rank)
        self._busy.add(node)
        if before in self._nodes.ids:
            self._outbox.send(before, wire.EndRank(attempt_number, rank))

    def node_ready(self) -> None:
        if self._waiting is not None:
            self.start(self._waiting)

    def stop(self, attempt_number: int, graceful: bool) -> bool:
        """True if no node has heard of the attempt yet; then none will."""
        if self._waiting is not None or attempt_number not in self._homes:
            self._waiting = None
            return True
        for node in sorted(self._busy):
            self._outbox.send(node, wire.StopWorkers(attempt_number, graceful))
        return not self._busy and not self.is_being_read

    def may_have_processes(self, node: str) -> bool:
        """The processes of the last attempt."""
        return node in self._busy

    def node_lost(self, node: str) -> list[int]:
        """The ranks of the last attempt that were on this node."""
        self._busy.discard(node)
        del self._orders[node]
        return [rank for rank, home in self._homes.get(self.attempt_number, {}).items() if home == node]

    def ranks_that_left(self, node: str) -> set[int]:
        """The ranks of the last attempt that moved from this node to another one."""
        return self._left.get(node, set())

    def take_gone(self, node: str, attempt_number: int, orders: int = 0) -> bool:
        """A node has no process of the attempt left. Returns whether it was the last such node. A node that has not yet
        carried out all orders to start processes will say this again."""
        if attempt_number != self.attempt_number or 0 < orders < self._orders[node]:
            return False
        self._busy.discard(node)
        return not self._busy and not self.is_being_read

    def is_well_placed(self, attempt_number: int) -> bool:
        """Whether the next attempt would be on all of its nodes."""
        return set(self._homes.get(attempt_number, {}).values()) <= set(self._nodes.usable())

    def node_of(self, attempt_number: int, rank: int) -> str:
        return self._homes.get(attempt_number, {}).get(rank, "")

    def ranks_on(self, attempt_number: int, nodes: Iterable[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {node: [] for node in nodes}
        for rank, home in sorted(self._homes.get(attempt_number, {}).items()):
            if home in found:
                found[home].append(rank)
        return found

    def report_log(self, attempt_number: int, rank: int) -> Path | None:
        """Where the rank logs its reports, if that is on this machine."""
        return self._site.report_log(attempt_number, rank, self.node_of(attempt_number, rank))
