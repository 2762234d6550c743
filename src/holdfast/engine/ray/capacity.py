"""How many workers a cluster has room for: now, when it is empty, and when its autoscaler has done all it may."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.engine.demand import Demand

from .connection import connected_ray
from .nodes import RayNode, look

_ROUNDING = 1e-9


@dataclass(frozen=True)
class NodeType:
    """A kind of node that the autoscaler may add."""

    name: str
    seats: int  # of one node
    least: int
    most: int | None  # None: nobody says


@dataclass(frozen=True)
class Capacity:
    """Seats are rooms for one worker each. ``nodes``: each with its free ones, and all."""

    nodes: Sequence[tuple[RayNode, int, int]]
    types: Sequence[NodeType]  # none if the cluster has no autoscaler that says so

    @property
    def free(self) -> int:
        return sum(free for node, free, _ in self.nodes if node.drain_by is None)

    @property
    def now(self) -> int:
        return sum(room for node, _, room in self.nodes if node.drain_by is None)

    @property
    def in_time(self) -> float:
        """When the autoscaler has added all nodes that it may; those that are there may be of these types."""
        most = sum(math.inf if kind.most is None else kind.seats * kind.most for kind in self.types if kind.seats)
        return max(self.now, most)


def why_waiting(demand: Demand) -> str:
    """For a person whose run waits for room."""
    found = capacity(demand)
    each = ", ".join(f"{amount:g} {name}" for name, amount in demand.resources.items())
    where = f", on nodes with {demand.labels_of(0)}" if demand.labels else ""
    how = f", {demand.strategy}" if demand.strategy.startswith("STRICT") and demand.least > 1 else ""
    more = f"; with all nodes that the autoscaler may add, for {found.in_time:g}" if found.in_time > found.now else ""
    return (
        f"Ray has not granted what the run needs at least yet: {demand.least} x ({each}){where}{how}. "
        f"The nodes that are there have room for {found.now}, and {found.free} of it is free{more}"
    )


def capacity(demand: Demand) -> Capacity:
    state = connected_ray()._private.state.state  # what each node has left is not public
    left = state.available_resources_per_node()
    nodes = [
        (node, room_in(left.get(node.id, {}), demand), room_in(node.resources, demand))
        if fits(node, demand)
        else (node, 0, 0)
        for node in sorted(look().values(), key=lambda node: node.name)
    ]
    return Capacity(nodes, _types(state, demand))


def room_in(resources: Mapping[str, float], demand: Demand) -> int:
    rooms = [resources.get(name, 0.0) / amount + _ROUNDING for name, amount in demand.resources.items() if amount]
    return math.floor(min(rooms, default=0.0))


def fits(node: RayNode, demand: Demand) -> bool:
    """Whether it has the labels, as far as a plain value asks for one; what says more is left to Ray."""
    selector = demand.labels_of(0)
    plain = {name: value for name, value in selector.items() if not value.startswith(("!", "in("))}
    return all(node.labels.get(name) == value for name, value in plain.items())


def _types(state: object, demand: Demand) -> list[NodeType]:
    config = state.get_cluster_config()  # type: ignore[attr-defined]
    if config is None:
        return []
    return [
        NodeType(
            kind.name,
            room_in(dict(kind.resources), demand),
            max(0, kind.min_count),
            kind.max_count if kind.max_count >= 0 else None,
        )
        for kind in config.node_group_configs
    ]
