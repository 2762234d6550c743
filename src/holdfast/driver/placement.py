"""The nodes that a run can use, how many workers they have room for, and which worker goes where."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from holdfast.wire.messages import NodeReady, Seat
from holdfast.wire.worker_messages import Place

_SPREADS = ("SPREAD", "STRICT_SPREAD")


@dataclass
class Node:
    id: str
    cpus: float
    gpus: float
    address: str
    seats: list[Seat] | None = None  # what a cluster has granted there
    place: str = ""
    clear: bool = True  # nothing of an earlier driver's group lives there
    draining: bool = False  # it will be taken away
    resting: bool = False  # it failed too often
    unfit: bool = False  # its probe found something wrong
    apart: bool = False  # it cannot talk to others


def place_of(message: NodeReady) -> str:
    """The node on its machine, if workers may outlive their driver there; else empty."""
    return f"{message.node_id}@{message.machine}" if message.machine else ""


class Placement:
    def __init__(self, cpus_per_worker: float, gpus_per_worker: float, strategy: str, least: int) -> None:
        self._cpus, self._gpus = cpus_per_worker, gpus_per_worker
        self._spread = strategy in _SPREADS
        self._least = least  # the fewest workers that a group may have
        self._joining: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._resting: set[str] = set()
        self._clear: set[str] = set()  # places that others have found clear

    @property
    def is_settled(self) -> bool:
        """Whether no node is on its way."""
        return not self._joining

    @property
    def ids(self) -> list[str]:
        return list(self._nodes)

    def joining(self, id: str) -> None:
        self._joining.add(id)

    def ready(self, message: NodeReady) -> None:
        self._joining.discard(message.node_id)
        what = (message.cpus, message.gpus, message.address, message.seats)
        node = Node(message.node_id, *what, place_of(message), message.clear)
        node.resting = node.id in self._resting
        self._nodes[node.id] = node

    def seat(self, id: str, seats: list[Seat]) -> None:
        if id in self._nodes:
            self._nodes[id].seats = seats

    def lost(self, id: str) -> bool:
        """Whether it was there, or on its way."""
        was_joining = id in self._joining
        self._joining.discard(id)
        return self._nodes.pop(id, None) is not None or was_joining

    def drain(self, id: str) -> None:
        if id in self._nodes:
            self._nodes[id].draining = True

    def rest(self, id: str, on: bool) -> None:
        self._resting = self._resting | {id} if on else self._resting - {id}
        if id in self._nodes:
            self._nodes[id].resting = on

    def mark_unfit(self, id: str) -> None:
        if id in self._nodes:
            self._nodes[id].unfit = True

    def set_apart(self, ids: Collection[str]) -> None:
        for node in self._nodes.values():
            node.apart = node.id in ids

    def is_draining(self, id: str) -> bool:
        return id in self._nodes and self._nodes[id].draining

    def address(self, id: str) -> str:
        return self._nodes[id].address

    def slots(self) -> float:
        """How many workers there is room for; it may be endless."""
        return sum(self._room(node) for node in self._usable())

    def slots_up_to(self, most: int) -> int:
        """The same, as far as it is wanted."""
        slots = self.slots()
        return most if math.isinf(slots) else int(slots)

    def usable(self) -> list[str]:
        return [node.id for node in self._usable()]

    def clear_among(self, places: Iterable[str]) -> list[str]:
        """Those on which workers could outlive their driver, and none has."""
        clear = self._clear | {node.place for node in self._nodes.values() if node.clear}
        return [place for place in places if place in clear]

    def mark_clear(self, places: Iterable[str]) -> None:
        self._clear.update(places)

    def leased(self, world_size: int) -> list[str]:
        """The places across a network that a group would take."""
        return [place for id in self.place(world_size) if (place := self._nodes[id].place)]

    def place(self, world_size: int, leased: Collection[str] | None = None) -> dict[str, list[Place]]:
        """By node. Ranks that are on one node follow each other. Of the places across a network, only those."""
        nodes = [node for node in self._usable() if leased is None or not node.place or node.place in leased]
        counts = self._spread_out(nodes, world_size) if self._spread else self._packed(nodes, world_size)
        placed: dict[str, list[Place]] = {}
        rank = 0
        for node_rank, (node, count) in enumerate((node, count) for node, count in counts if count):
            sees, devices = self._devices(node, count)
            placed[node.id] = [Place(rank + i, i, count, node_rank, self._cpus, devices[i], sees) for i in range(count)]
            rank += count
        return placed

    def _devices(self, node: Node, count: int) -> tuple[str, list[list[int]]]:
        """The GPUs that the workers of a node see, and which of them each has; two may share one."""
        if node.seats is None:
            if 0 < self._gpus < 1:
                sharing = _times(self._gpus, 1.0)
                return "", [[i // sharing] for i in range(count)]
            gpus = math.ceil(self._gpus)
            return "", [list(range(i * gpus, (i + 1) * gpus)) for i in range(count)]
        taken = [seat.gpus for seat in node.seats[:count]]
        sees = list(dict.fromkeys(gpu for gpus in taken for gpu in gpus))
        return ",".join(sees), [[sees.index(gpu) for gpu in gpus] for gpus in taken]

    def _usable(self) -> list[Node]:
        """Nodes that failed often, or cannot talk to others, are used only where the rest is not enough."""
        fit = [node for node in self._nodes.values() if not node.draining and not node.unfit]
        good = [node for node in fit if not node.resting and not node.apart]
        return good if sum(map(self._room, good)) >= self._least else fit

    def _room(self, node: Node) -> float:
        if node.seats is not None:
            return len(node.seats)
        if math.isinf(node.cpus):
            return math.inf
        by_cpu = math.inf if not self._cpus else _times(self._cpus, node.cpus)
        by_gpu = math.inf
        if self._gpus >= 1:
            by_gpu = _times(math.ceil(self._gpus), node.gpus)
        elif self._gpus:
            by_gpu = _times(self._gpus, 1.0) * math.floor(node.gpus)  # a share is of one device
        return min(by_cpu, by_gpu)

    def _packed(self, nodes: list[Node], world_size: int) -> list[tuple[Node, int]]:
        left, counts = world_size, []
        for node in sorted(nodes, key=self._room, reverse=True):
            count = int(min(left, self._room(node)))
            counts.append((node, count))
            left -= count
        return counts

    def _spread_out(self, nodes: list[Node], world_size: int) -> list[tuple[Node, int]]:
        counts = dict.fromkeys((node.id for node in nodes), 0)
        left = world_size
        while left > 0:
            free = [node for node in nodes if counts[node.id] < self._room(node)]
            if not free:
                break
            for node in free[:left]:
                counts[node.id] += 1
            left -= min(left, len(free))
        return [(node, counts[node.id]) for node in nodes]


def _times(share: float, amount: float) -> int:
    """How often it is in there: ten times a tenth in one, whatever binary fractions say."""
    return math.floor(amount / share + 1e-9)
