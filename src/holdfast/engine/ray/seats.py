"""What Ray has granted to a run: seats, each the room for one worker, held by placement groups.

The fewest workers that a run needs are one group, which Ray grants as a whole. Each seat beyond that is a group of its
own, and so is each that takes the place of one on a node that is lost or will be.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from holdfast.engine.demand import Demand
from holdfast.wire.messages import Seat

from .reservation import Reservation


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
            reservation.look(alive)
        self._has_begun = self._has_begun or self._core.is_whole
        for extra in [extra for extra in self._extras if extra.is_whole and extra.nodes[0] not in alive]:
            self._give_back(extra)

    def by_node(self) -> dict[str, list[Seat]]:
        found: dict[str, list[Seat]] = {}
        for reservation in (self._core, *self._extras):
            for index, node in enumerate(reservation.nodes):
                gpus = reservation.gpus(index) if node and self._has_begun else None
                if gpus is not None:
                    found.setdefault(node, []).append(Seat(gpus))
        return found

    # What there should be

    def balance(self, doubted: Collection[str], is_busy: Callable[[str], bool]) -> bool:
        """Ask for as many seats as the run may have, not counting those on nodes that are lost or will be; withdraw
        what is more than that, unless somebody sits there. Whether any were asked for."""
        if not self._has_begun:
            return False  # else a part of what the whole group needs would be taken away from it
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
        return surplus < 0

    def release(self) -> None:
        for reservation in (self._core, *self._extras):
            reservation.remove()
        self._extras.clear()

    def _give_back(self, extra: Reservation) -> None:
        self._extras.remove(extra)
        extra.remove()

    def _reserve(self, count: int, avoiding: Collection[str]) -> Reservation:
        demand = self._demand
        labels = [demand.labels_of(self._numbered + i) for i in range(count)] if demand.labels else []
        self._numbered += count
        strategy = demand.strategy if count > 1 else "PACK"
        return Reservation(f"{self._name}:{self._numbered}", [demand.resources] * count, strategy, labels, avoiding)
