"""The nodes of a run, and what is known of each. ``core/run/placement`` decides which worker runs where."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, KeysView, Mapping

from holdfast.core.run import placement
from holdfast.core.run.placement import KnownNode, WorkerNeeds
from holdfast.wire.messages import NodeReady, Seat
from holdfast.wire.worker_messages import Place


def place_of(message: NodeReady) -> str:
    """The node's place on its machine, if workers may outlive their driver there; otherwise empty."""
    return f"{message.node_id}@{message.machine}" if message.machine else ""


class NodeRegistry:
    def __init__(self, needs: WorkerNeeds) -> None:
        self._needs = needs
        self._joining: set[str] = set()
        self._nodes: dict[str, KnownNode] = {}
        self._resting: set[str] = set()
        self._clear: set[str] = set()  # places on which other nodes found no process left

    @property
    def is_settled(self) -> bool:
        """Whether no node is joining."""
        return not self._joining

    @property
    def ids(self) -> KeysView[str]:
        return self._nodes.keys()

    def joining(self, id: str) -> None:
        self._joining.add(id)

    def ready(self, message: NodeReady) -> None:
        self._joining.discard(message.node_id)
        what = (message.cpus, message.gpus, message.address, _granted(message.seats))
        node = KnownNode(message.node_id, *what, place_of(message), message.clear)
        node.resting = node.id in self._resting
        self._nodes[node.id] = node

    def seat(self, id: str, seats: list[Seat]) -> None:
        if id in self._nodes:
            self._nodes[id].seats = _granted(seats)

    def lost(self, id: str) -> bool:
        """Whether the node was known or joining."""
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
        """How many workers fit; it may be infinite."""
        return sum(placement.capacity_of(node, self._needs) for node in self._usable())

    def slots_up_to(self, most: int) -> int:
        """The same, but not more than the run wants."""
        slots = self.slots()
        return most if math.isinf(slots) else int(slots)

    def usable(self) -> list[str]:
        return [node.id for node in self._usable()]

    def clear_among(self, places: Iterable[str]) -> list[str]:
        """Places where workers can outlive their driver and none has."""
        clear = self._clear | {node.place for node in self._nodes.values() if node.clear}
        return [place for place in places if place in clear]

    def mark_clear(self, places: Iterable[str]) -> None:
        self._clear.update(places)

    def places_of(self, ids: Iterable[str]) -> list[str]:
        """The places of those nodes that are reached over a network."""
        return [place for id in ids if id in self._nodes and (place := self._nodes[id].place)]

    def with_room(self, taken: Mapping[str, int]) -> dict[str, int]:
        """How many more workers fit on each usable node. ``taken``: how many it has."""
        return placement.room_left(self._usable(), taken, self._needs)

    def leased(self, world_size: int) -> list[str]:
        """The places across a network on which an attempt would be."""
        return self.places_of(self.place(world_size))

    def place(self, world_size: int, leased: Collection[str] | None = None) -> dict[str, list[Place]]:
        """The number of workers for each node: ranks on one node are consecutive. Of the nodes across a network, use
        only these places."""
        nodes = [node for node in self._usable() if leased is None or not node.place or node.place in leased]
        placed: dict[str, list[Place]] = {}
        rank, cpus = 0, self._needs.cpus
        for node_rank, (node, count) in enumerate(placement.distribute(nodes, world_size, self._needs)):
            sees, devices = placement.devices(node, count, self._needs)
            placed[node.id] = [Place(rank + i, i, count, node_rank, cpus, devices[i], sees) for i in range(count)]
            rank += count
        return placed

    def _usable(self) -> list[KnownNode]:
        return placement.usable(self._nodes.values(), self._needs)


def _granted(seats: list[Seat] | None) -> list[list[str]] | None:
    return None if seats is None else [seat.gpus for seat in seats]
