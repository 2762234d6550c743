"""What Ray has granted to a run: seats, each the room for one worker, held by placement groups.

The fewest workers that a run needs are one group, which Ray grants as a whole. Each seat beyond that is a group of its
own, and so is each that takes the place of one on a node that is lost or will be: a group that is not granted yet is
what the autoscaler sees, and is withdrawn by removing it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.demand import Demand
from holdfast.wire.messages import Seat

from .connection import ray_module

_NODE_LABEL = "ray.io/node-id"


@dataclass
class Reservation:
    group: Any
    nodes: list[str]  # by bundle; empty where none is granted
    gpus: list[Any] = field(default_factory=list)  # by bundle: the ids, or where they will be

    @property
    def is_whole(self) -> bool:
        return all(self.nodes)


class Seats:
    def __init__(self, demand: Demand, name: str) -> None:
        self._demand, self._name = demand, f"{name}:{secrets.token_hex(3)}"
        self._has_begun = False  # the first group was granted
        self._numbered = 0
        self._core = self._reserve(max(1, demand.least), ())
        self._extras: list[Reservation] = []

    # What there is

    def look(self, alive: Collection[str]) -> None:
        """Take note of what was granted, and of what went with its node."""
        for reservation in (self._core, *self._extras):
            if not reservation.is_whole or not all(node in alive for node in reservation.nodes):
                self._look_at(reservation, alive)
        self._has_begun = self._has_begun or self._core.is_whole
        for extra in [extra for extra in self._extras if extra.is_whole and extra.nodes[0] not in alive]:
            self._give_back(extra)

    def by_node(self) -> dict[str, list[Seat]]:
        found: dict[str, list[Seat]] = {}
        for reservation in (self._core, *self._extras):
            for index, node in enumerate(reservation.nodes):
                gpus = self._gpus(reservation, index) if node and self._has_begun else None
                if gpus is not None:
                    found.setdefault(node, []).append(Seat(gpus))
        return found

    def _look_at(self, reservation: Reservation, alive: Collection[str]) -> None:
        table = ray_module().util.placement_group_table(reservation.group)
        granted = table.get("bundles_to_node_id", {}) if table.get("state") in ("CREATED", "RESCHEDULING") else {}
        for index, known in enumerate(reservation.nodes):
            node = granted.get(index, "")
            node = node if node in alive else ""
            if node != known:
                reservation.nodes[index] = node
                reservation.gpus[index] = self._ask_for_gpus(reservation.group, index) if node else None

    def _ask_for_gpus(self, group: Any, index: int) -> Any:
        """Which GPUs a bundle has is told only to what runs in it; they stay the same as long as it has them."""
        if not self._demand.gpus:
            return []
        ray = ray_module()
        where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group, index)
        task = ray.remote(num_cpus=0, num_gpus=self._demand.gpus, max_retries=0, scheduling_strategy=where)(_gpu_ids)
        return task.options(name=f"{self._name}:gpus").remote()

    def _gpus(self, reservation: Reservation, index: int) -> list[str] | None:
        """None while it is not known."""
        ray, found = ray_module(), reservation.gpus[index]
        if isinstance(found, ray.ObjectRef):
            done, _ = ray.wait([found], timeout=0)
            if not done:
                return None
            try:
                found = ray.get(found)
            except ray.exceptions.RayError:  # the node is gone; or will be asked again
                found = self._ask_for_gpus(reservation.group, index)
                reservation.gpus[index] = found
                return None
            reservation.gpus[index] = found
        known: list[str] | None = found
        return known

    # What there should be

    def balance(self, doubted: Collection[str], is_busy: Callable[[str], bool]) -> None:
        """Ask for as many seats as the run may have, not counting those on nodes that are lost or will be; withdraw
        what is more than that, unless somebody sits there."""
        if not self._has_begun:
            return  # else a part of what the whole group needs would be taken away from it
        for extra in [e for e in self._extras if e.is_whole and e.nodes[0] in doubted and not is_busy(e.nodes[0])]:
            self._give_back(extra)
        sound = sum(1 for node in self._core.nodes if node and node not in doubted)
        sound += sum(1 for extra in self._extras if extra.nodes[0] not in doubted)
        for _ in range(self._demand.most - sound):
            self._extras.append(self._reserve(1, doubted))
        surplus = sound - self._demand.most
        idle = [extra for extra in self._extras if not extra.is_whole or not is_busy(extra.nodes[0])]
        for extra in sorted(idle, key=lambda extra: extra.is_whole)[: max(0, surplus)]:
            self._give_back(extra)

    def release(self) -> None:
        for reservation in (self._core, *self._extras):
            ray_module().util.remove_placement_group(reservation.group)
        self._extras.clear()

    def _give_back(self, extra: Reservation) -> None:
        self._extras.remove(extra)
        ray_module().util.remove_placement_group(extra.group)

    def _reserve(self, count: int, avoiding: Collection[str]) -> Reservation:
        demand, util = self._demand, ray_module().util
        selectors = [demand.labels_of(self._numbered + i) for i in range(count)]
        self._numbered += count
        if avoiding:
            others = ",".join(sorted(avoiding))
            selectors = [{_NODE_LABEL: f"!in({others})", **selector} for selector in selectors]
        more = {"bundle_label_selector": selectors} if any(selectors) else {}
        strategy = demand.strategy if count > 1 else "PACK"
        bundles = [dict(demand.resources)] * count
        group = util.placement_group(bundles, strategy=strategy, name=f"{self._name}:{self._numbered}", **more)
        return Reservation(group, [""] * count, [None] * count)


def _gpu_ids() -> list[str]:
    return [str(id) for id in ray_module().get_gpu_ids()]
