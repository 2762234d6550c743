"""The free resources on the nodes of an experiment, and how trials get them. Nodes that only the experiment uses are
shared out here, according to their resources. A cluster that others use too grants resources on request: see
``granted_capacity``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.tune.resources import total
from holdfast.wire.messages import NodeReady, Seat

Bundles = Sequence[Mapping[str, float]]
_ROUNDING = 1e-9


@dataclass(frozen=True)
class BundlePlacement:
    """How a trial's bundles are to be placed, where a cluster places them."""

    strategy: str = "PACK"
    labels: tuple[Mapping[str, str], ...] = ()  # selectors, one for each bundle; none if any node will do
    besides: Mapping[str, float] = field(default_factory=dict)  # requests of each bundle that only a cluster knows


PLAIN = BundlePlacement()


@dataclass
class Share:
    """A trial's share of one node: a seat for each of its bundles there."""

    taken: dict[str, float] = field(default_factory=dict)
    seats: list[Seat] = field(default_factory=list)
    gpus: list[tuple[int, float]] = field(default_factory=list)  # the GPUs of the node, and how much of each

    def add(self, other: Share) -> None:
        self.taken = total([self.taken, other.taken])
        self.seats += other.seats
        self.gpus += other.gpus


Shares = dict[str, Share]  # by node


class TrialCapacity(Protocol):
    is_granted: bool  # a cluster places the bundles on request

    @property
    def is_settled(self) -> bool:
        """Whether no node is joining for the first time."""

    def place(self, bundles: Bundles, placement: BundlePlacement = PLAIN) -> Shares | None:
        """Reserve the bundles where they fit now. None if they do not fit."""

    def expect(self, bundles: Bundles, placement: BundlePlacement, count: int) -> None:
        """Announce how many more requests like this one may be placed soon."""

    def give_back(self, shares: Mapping[str, Share]) -> None: ...

    def lacking(self, shares: Mapping[str, Share], bundles: Bundles) -> list[Mapping[str, float]]:
        """The bundles that the shares do not cover. Shares on nodes that will be removed do not count."""

    def can_ever(self, bundles: Bundles) -> bool:
        """Whether the existing nodes could hold them if nothing else ran."""

    def total(self) -> dict[str, float]: ...
    def settle(self) -> None:
        """Called when everything that can be placed now has been placed."""

    def joining(self, node: str) -> None: ...
    def ready(self, message: NodeReady) -> None: ...
    def seat(self, node: str, seats: Sequence[Seat]) -> None: ...
    def drain(self, node: str) -> None: ...
    def lost(self, node: str) -> None: ...


@dataclass
class NodeResources:
    id: str
    free: dict[str, float]
    total: dict[str, float]
    gpus: list[float]  # the free resources of each
    draining: bool = False


class NodeCapacity:
    """Capacity on nodes that only the experiment uses."""

    is_granted = False

    def __init__(self, of_this_machine: Mapping[str, float] | None = None) -> None:
        """``of_this_machine``: the resources of a node that does not report them itself."""
        self._of_this_machine = of_this_machine or {}
        self._nodes: dict[str, NodeResources] = {}
        self._joining: set[str] = set()

    @property
    def is_settled(self) -> bool:
        return bool(self._nodes) and not self._joining

    def place(self, bundles: Bundles, placement: BundlePlacement = PLAIN) -> Shares | None:
        shares: Shares = {}
        for bundle in bundles:
            node = next((node for node in self._in_order(shares) if _fits(bundle, node)), None)
            if node is None:
                self.give_back(shares)
                return None
            _take(bundle, node, shares.setdefault(node.id, Share()))
        return shares

    def expect(self, bundles: Bundles, placement: BundlePlacement, count: int) -> None:
        """Does nothing: the existing resources do not change."""

    def settle(self) -> None:
        pass

    def _in_order(self, shares: Mapping[str, Share]) -> list[NodeResources]:
        """Nodes that already have a part of the trial come first, then the fullest nodes."""
        usable = [node for node in self._nodes.values() if not node.draining]
        return sorted(usable, key=lambda node: (node.id not in shares, node.free.get("CPU", 0.0)))

    def give_back(self, shares: Mapping[str, Share]) -> None:
        for id, share in shares.items():
            node = self._nodes.get(id)
            if node is None:
                continue
            for name, amount in share.taken.items():
                node.free[name] = node.free.get(name, 0.0) + amount
            for device, amount in share.gpus:
                node.gpus[device] = min(1.0, node.gpus[device] + amount)

    def lacking(self, shares: Mapping[str, Share], bundles: Bundles) -> list[Mapping[str, float]]:
        return what_lacks(
            [share for id, share in shares.items() if id in self._nodes and not self._nodes[id].draining], bundles
        )

    def can_ever(self, bundles: Bundles) -> bool:
        fresh = {n.id: NodeResources(n.id, dict(n.total), n.total, [1.0] * len(n.gpus)) for n in self._nodes.values()}
        unused = NodeCapacity()
        unused._nodes = fresh
        return unused.place(bundles) is not None

    def total(self) -> dict[str, float]:
        return total(node.total for node in self._nodes.values())

    # Nodes

    def joining(self, node: str) -> None:
        self._joining.add(node)

    def ready(self, message: NodeReady) -> None:
        self._joining.discard(message.node_id)
        has = {"CPU": message.cpus, "GPU": message.gpus}
        if math.isinf(message.cpus):
            has |= {"CPU": float(os.cpu_count() or 1), **self._of_this_machine}
        self._nodes[message.node_id] = NodeResources(message.node_id, dict(has), has, [1.0] * math.ceil(has["GPU"]))

    def seat(self, node: str, seats: Sequence[Any]) -> None:
        """Does nothing: these nodes are not shared with others."""

    def drain(self, node: str) -> None:
        if node in self._nodes:
            self._nodes[node].draining = True

    def lost(self, node: str) -> None:
        self._joining.discard(node)
        self._nodes.pop(node, None)


def what_lacks(shares: Iterable[Share], bundles: Bundles) -> list[Mapping[str, float]]:
    left = [dict(share.taken) for share in shares]
    lacking = []
    for bundle in bundles:
        for taken in left:
            if all(taken.get(name, 0.0) >= amount - _ROUNDING for name, amount in bundle.items() if name != "GPU"):
                for name, amount in bundle.items():
                    taken[name] = taken.get(name, 0.0) - amount
                break
        else:
            lacking.append(bundle)
    return lacking


def _fits(bundle: Mapping[str, float], node: NodeResources) -> bool:
    for name, amount in bundle.items():
        if name != "GPU" and amount > node.free.get(name, 0.0) + _ROUNDING:
            return False
    gpus = bundle.get("GPU", 0.0)
    return not gpus or _devices(gpus, node) is not None


def _devices(amount: float, node: NodeResources) -> list[tuple[int, float]] | None:
    """Whole GPUs for whole numbers, otherwise a part of one GPU."""
    if amount < 1.0:
        sharing = [d for d, free in enumerate(node.gpus) if free >= amount - _ROUNDING]
        return [(min(sharing, key=lambda d: node.gpus[d]), amount)] if sharing else None
    whole = [d for d, free in enumerate(node.gpus) if free >= 1.0 - _ROUNDING][: math.ceil(amount)]
    return [(d, 1.0) for d in whole] if len(whole) == math.ceil(amount) else None


def _take(bundle: Mapping[str, float], node: NodeResources, share: Share) -> None:
    amounts = {name: amount for name, amount in bundle.items() if name != "GPU"}
    gpus = (_devices(bundle["GPU"], node) or []) if bundle.get("GPU") else []
    for name, amount in amounts.items():
        node.free[name] = node.free.get(name, 0.0) - amount
    for device, amount in gpus:
        node.gpus[device] -= amount
    share.add(Share(amounts, [Seat([str(device) for device, _ in gpus])], gpus))
