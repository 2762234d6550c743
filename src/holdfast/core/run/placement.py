"""Which worker goes to which node: the nodes that may be used, how many workers fit on each, and their GPUs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

_SPREADS = ("SPREAD", "STRICT_SPREAD")


class WorkerNeeds(NamedTuple):
    """The resources of each worker, and how the workers of an attempt are distributed over nodes."""

    cpus: float
    gpus: float
    strategy: str
    least: int  # the fewest workers that an attempt may have


class KnownNode(Struct):
    id: str
    cpus: float
    gpus: float
    address: str
    seats: Sequence[Sequence[str]] | None = None  # what a cluster has granted there: the GPUs of each worker
    place: str = ""  # the node on its machine, if workers may outlive their driver there
    clear: bool = True  # no process of an earlier driver's attempt is left there
    draining: bool = False  # it will be preempted
    resting: bool = False  # it failed too often
    unfit: bool = False  # its probe found something wrong
    apart: bool = False  # it cannot talk to others


def usable(nodes: Iterable[KnownNode], needs: WorkerNeeds) -> list[KnownNode]:
    """Nodes that failed often, or cannot talk to others, are used only where the rest is not enough."""
    fit = [node for node in nodes if not node.draining and not node.unfit]
    good = [node for node in fit if not node.resting and not node.apart]
    return good if sum(capacity_of(node, needs) for node in good) >= needs.least else fit


def capacity_of(node: KnownNode, needs: WorkerNeeds) -> float:
    """How many workers fit on it; it may be endless."""
    if node.seats is not None:
        return len(node.seats)
    if math.isinf(node.cpus):
        return math.inf
    by_cpu = math.inf if not needs.cpus else _times(needs.cpus, node.cpus)
    by_gpu = math.inf
    if needs.gpus >= 1:
        by_gpu = _times(math.ceil(needs.gpus), node.gpus)
    elif needs.gpus:
        by_gpu = _times(needs.gpus, 1.0) * math.floor(node.gpus)  # a fraction is a share of one device
    return min(by_cpu, by_gpu)


def distribute(nodes: Sequence[KnownNode], world_size: int, needs: WorkerNeeds) -> list[tuple[KnownNode, int]]:
    """How many workers each node gets, as far as they fit; nodes without any are left out."""
    counts = _spread(nodes, world_size, needs) if needs.strategy in _SPREADS else _packed(nodes, world_size, needs)
    return [(node, count) for node, count in counts if count]


def standby_node(homes: Iterable[str], standbys: Iterable[str]) -> str | None:
    """The node for another standby: of those with ranks, the one with the most ranks for each standby that it has.
    ``homes``: the node of each rank; ``standbys``: of each standby. None if no rank has a node."""
    ranks, waiting = Counter(homes), Counter(standbys)
    return max(ranks, key=lambda node: (ranks[node] / (waiting[node] + 1), node), default=None)


def room_left(nodes: Iterable[KnownNode], taken: Mapping[str, int], needs: WorkerNeeds) -> dict[str, int]:
    """How many more workers fit on each node with capacity. ``taken``: how many are there."""
    most = max(1, sum(taken.values()))
    free = {node.id: capacity_of(node, needs) - taken.get(node.id, 0) for node in nodes}
    return {id: int(min(count, most)) for id, count in free.items() if count > 0}


def roomiest(free: Mapping[str, int]) -> str | None:
    """The node for a rank that moves: the one with the most capacity."""
    return max(free, key=lambda id: (free[id], id), default=None)


def devices(node: KnownNode, count: int, needs: WorkerNeeds) -> tuple[str, list[list[int]]]:
    """The GPUs that the workers of a node see, and which of them each has; two may share one."""
    if node.seats is None:
        if 0 < needs.gpus < 1:
            sharing = _times(needs.gpus, 1.0)
            return "", [[i // sharing] for i in range(count)]
        gpus = math.ceil(needs.gpus)
        return "", [list(range(i * gpus, (i + 1) * gpus)) for i in range(count)]
    taken = node.seats[:count]
    sees = list(dict.fromkeys(gpu for each in taken for gpu in each))
    return ",".join(sees), [[sees.index(gpu) for gpu in each] for each in taken]


def _packed(nodes: Sequence[KnownNode], world_size: int, needs: WorkerNeeds) -> list[tuple[KnownNode, int]]:
    left, counts = world_size, []
    for node in sorted(nodes, key=lambda node: capacity_of(node, needs), reverse=True):
        count = int(min(left, capacity_of(node, needs)))
        counts.append((node, count))
        left -= count
    return counts


def _spread(nodes: Sequence[KnownNode], world_size: int, needs: WorkerNeeds) -> list[tuple[KnownNode, int]]:
    counts = dict.fromkeys((node.id for node in nodes), 0)
    left = world_size
    while left > 0:
        free = [node for node in nodes if counts[node.id] < capacity_of(node, needs)]
        if not free:
            break
        for node in free[:left]:
            counts[node.id] += 1
        left -= min(left, len(free))
    return [(node, counts[node.id]) for node in nodes]


def _times(share: float, amount: float) -> int:
    """How often one amount fits into another. 0.1 fits ten times into 1, despite binary fractions."""
    return math.floor(amount / share + 1e-9)
