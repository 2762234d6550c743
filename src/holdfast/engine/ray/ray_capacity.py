"""How many workers fit on a cluster: now, when it is empty, and after its autoscaler has added all nodes that it
may."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.engine.demand import Demand
from holdfast.engine.ray.connection import connected_ray
from holdfast.engine.ray.growth import Growth, NodeGroup, known_growth, seems_to_grow
from holdfast.engine.ray.ray_nodes import RayNode, look

_ROUNDING = 1e-9
_HEAD = "node:__internal_head__"  # a resource that only the head has
_OF_RAY = "ray.io/"  # such labels Ray may find out when a node starts


@dataclass(frozen=True)
class NodeType:
    """A kind of node that the autoscaler may add."""

    name: str
    seats: int | None  # of one node; None if unknown
    least: int
    most: int | None  # None: no limit


@dataclass(frozen=True)
class RayCapacity:
    """A seat is capacity for one worker. ``nodes``: the free seats and all seats of each. ``limit``: the most nodes
    without the head. ``together``: the minimum number of workers must fit on one node."""

    nodes: Sequence[tuple[RayNode, int, int]]
    types: Sequence[NodeType]  # None if it is unknown what may be added
    limit: int | None = None
    in_the_dark: bool = False  # there may be an autoscaler, and it is unknown what it may add
    together: bool = False

    @property
    def free(self) -> int:
        return sum(self._seats(free=True))

    @property
    def now(self) -> int:
        return sum(self._seats())

    @property
    def in_time(self) -> float:
        """After the autoscaler has added all nodes that it may; existing nodes may be of these types, except the
        head."""
        return max(self.now, sum(self._seats(only_head=True)) + self._added())

    @property
    def is_known(self) -> bool:
        """Whether ``in_time`` is a known number, and not only one that cannot be excluded."""
        return not self.in_the_dark and all(kind.seats is not None or kind.most == 0 for kind in self.types)

    @property
    def to_start_free(self) -> int:
        return max(self._seats(free=True), default=0) if self.together else self.free

    @property
    def to_start_now(self) -> int:
        return max(self._seats(), default=0) if self.together else self.now

    @property
    def to_start_in_time(self) -> float:
        if not self.together:
            return self.in_time
        addable = [_or_no_limit(kind.seats) for kind in self.types if kind.most != 0 and self.limit != 0]
        return math.inf if self.in_the_dark else max([self.to_start_now, *addable])

    def _seats(self, free: bool = False, only_head: bool = False) -> list[int]:
        """How many workers fit on each node that stays."""
        staying = [(node, left if free else room) for node, left, room in self.nodes if node.drain_by is None]
        return [room for node, room in staying if _HEAD in node.resources or not only_head]

    def _added(self) -> float:
        """Each type has at least its minimum of nodes. The other nodes that may be added are of the largest types."""
        if self.in_the_dark:
            return math.inf
        seats: float = 0
        left = _or_no_limit(self.limit) - sum(kind.least for kind in self.types)
        for kind in sorted(self.types, key=lambda kind: _or_no_limit(kind.seats), reverse=True):
            more = max(0.0, min(_or_no_limit(kind.most) - kind.least, left))
            left -= more if math.isfinite(more) else 0
            count = kind.least + more
            seats += _or_no_limit(kind.seats) * count if kind.seats != 0 and count else 0
        return seats


def _or_no_limit(number: int | None) -> float:
    return math.inf if number is None else number


def why_waiting(demand: Demand) -> str:
    """For a person whose run waits for resources."""
    found = capacity(demand)
    each = ", ".join(f"{amount:g} {name}" for name, amount in demand.resources.items())
    selectors = selectors_of(demand)
    where = f", on nodes with {' or '.join(map(str, selectors))}" if any(selectors) else ""
    how = f", {demand.strategy}" if demand.strategy.startswith("STRICT") and demand.least > 1 else ""
    one = f", for {found.to_start_now} on one of them" if found.together and demand.least > 1 else ""
    return (
        f"The run waits for Ray to provide its minimum: {demand.least} x ({each}){where}{how}. "
        f"The cluster's nodes can hold {found.now}{one}, of which {found.free} are free now{_more(found)}"
    )


def _more(found: RayCapacity) -> str:
    if not found.is_known:
        return "; it is unknown here what an autoscaler may add"
    if found.in_time == math.inf:
        return "; the autoscaler may add nodes without limit"
    return f"; with all nodes that the autoscaler may add, for {found.in_time:g}" if found.in_time > found.now else ""


def capacity(demand: Demand, growth: Growth | None = None) -> RayCapacity:
    """``growth``: the cluster's configuration, if given."""
    state = connected_ray()._private.state.state  # the free resources of each node are not public
    left = state.available_resources_per_node()
    nodes = [
        (node, _seats_in(left.get(node.id, {}), demand), _seats_in(node.resources, demand))
        if fits(node, demand)
        else (node, 0, 0)
        for node in sorted(look().values(), key=lambda node: node.name)
    ]
    growth = growth or known_growth()
    types = [_type(group, demand) for group in growth.groups] if growth is not None else []
    together = demand.strategy == "STRICT_PACK"
    return RayCapacity(nodes, types, growth.most if growth else None, growth is None and seems_to_grow(), together)


def parts(demand: Demand) -> list[Demand]:
    """The demand, and separately the demand of the workers of each selector. Each of these must fit; even then, they
    may not all fit at the same time."""
    selectors = selectors_of(demand)
    if len(selectors) < 2:
        return [demand]
    each = [[demand.labels_of(worker) for worker in range(number)] for number in (demand.least, demand.most)]
    of_one = [
        replace(demand, least=each[0].count(selector), most=each[1].count(selector), labels=(selector,))
        for selector in selectors
    ]
    return [demand, *of_one]


def selectors_of(demand: Demand) -> list[dict[str, str]]:
    """Those that differ, of all workers; an empty one if any node will do."""
    every = [dict(selector) for selector in demand.labels[: demand.most]] or [{}]
    return list({tuple(sorted(selector.items())): selector for selector in every}.values())


def room_in(resources: Mapping[str, float], demand: Demand) -> int:
    rooms = [resources.get(name, 0.0) / amount + _ROUNDING for name, amount in demand.resources.items() if amount]
    return math.floor(min(rooms, default=0.0))


def fits(node: RayNode, demand: Demand) -> bool:
    """Whether it has the labels that a worker asks for, as far as they are plain values; what says more is Ray's."""
    return any(_has(node.labels, selector) for selector in selectors_of(demand))


def _has(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    plain = {name: value for name, value in selector.items() if not value.startswith(("!", "in("))}
    return all(labels.get(name) == value for name, value in plain.items())


def _will_have(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """A node that will be added, of which only the configuration is known."""
    found_out = {name: value for name, value in selector.items() if name.startswith(_OF_RAY) and name not in labels}
    return _has({**found_out, **labels}, selector)


def _seats_in(resources: Mapping[str, float], demand: Demand) -> int:
    room = room_in(resources, demand)
    return min(1, room) if demand.strategy == "STRICT_SPREAD" else room


def _type(group: NodeGroup, demand: Demand) -> NodeType:
    seats: int | None = 0
    if any(_will_have(group.labels, selector) for selector in selectors_of(demand)):
        seats = _seats_in(group.resources, demand) if group.resources else None
    return NodeType(group.name, seats, group.least, group.most)
