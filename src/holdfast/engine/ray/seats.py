"""What Ray has granted to a run: seats, each the room for one worker, held by placement groups.

The fewest workers that a run needs are one group, which Ray grants as a whole. Each seat beyond that is a group of its
own, and so is each that takes the place of one on a node that is lost or will be. A group that is of no use any more
goes back, before Ray reserves the same for it elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from holdfast.engine.demand import Demand
from holdfast.wire.messages import Seat

from .reservation import Reservation, look_at_some


class Seats:
    def __init__(self, demand: Demand, name: str) -> None:
        self._demand, self._name = demand, f"{name}:{secrets.token_hex(3)}"
        self._least = max(1, demand.least)
        self.has_begun = False  # the first group was granted
        self._numbered = self._turn = 0
        self._alive: set[str] = set()
        self._groups = [self._reserve(self._least, ())]
        self._too_much: list[Reservation] = []  # of them, where somebody sits for now

    # What there is

    def look(self, alive: Collection[str]) -> None:
        """Take note of what was granted, and of what went with its node."""
        self._alive = set(alive)
        for group in self._groups:
            if group.was_granted:
                group.look(alive)
        self._turn = look_at_some([group for group in self._groups if not group.was_granted], alive, self._turn)
        self.has_begun = self.has_begun or self._groups[0].is_whole

    def by_node(self) -> dict[str, list[Seat]]:
        """What the next workers may be put on."""
        found: dict[str, list[Seat]] = {}
        for group in (group for group in self._groups if group not in self._too_much):
            for index, node in enumerate(group.nodes):
                gpus = group.gpus(index) if node and self.has_begun else None
                if gpus is not None:
                    found.setdefault(node, []).append(Seat(gpus))
        return found

    # What there should be

    def balance(self, doubted: Collection[str], going: Collection[str], is_busy: Callable[[str], bool]) -> bool:
        """Ask for as many seats as the run may have, not counting those on nodes that are lost or will be; withdraw
        what is more than that, unless somebody sits there. Whether any were asked for."""
        if not self.has_begun:
            return False  # else a part of what the whole group needs would be taken away from it
        self._give_back_lost(doubted, going, is_busy)
        self._withdraw_what_avoids(self._alive - set(doubted) - self._taken())
        sound = sum(_sound(group, doubted) for group in self._groups)
        missing = self._demand.most - sound
        if not sound:  # it begins anew
            self._groups.insert(0, self._reserve(self._least, doubted))
            missing -= self._least
        self._groups += self._more(max(0, missing), doubted)
        self._shed(sound - self._demand.most, doubted, is_busy)
        return sound < self._demand.most

    def _more(self, count: int, doubted: Collection[str]) -> list[Reservation]:
        """One by one, as they come. Where no two may share a node, none goes where another is, and those of a run that
        needs them all go together."""
        if self._demand.strategy != "STRICT_SPREAD" or not count:
            return [self._reserve(1, doubted) for _ in range(count)]
        sizes = [count] if self._least == self._demand.most else [1] * count
        return [self._reserve(size, {*doubted, *self._taken()}) for size in sizes]

    def _taken(self) -> set[str]:
        """Where no other seat may be."""
        if self._demand.strategy != "STRICT_SPREAD":
            return set()
        return {node for group in self._groups for node in group.nodes if node}

    def _withdraw_what_avoids(self, nodes: Collection[str]) -> None:
        """It was asked for while one of them was doubted, and would not be granted there; it is asked for anew."""
        for group in [group for group in self._groups if not group.was_granted and group.avoids(nodes)]:
            self._give_back(group)

    def _shed(self, surplus: int, doubted: Collection[str], is_busy: Callable[[str], bool]) -> None:
        """What is more than the run may have goes back; where somebody sits, when the next group sits elsewhere."""
        self._too_much = []
        busy = {id(group): any(map(is_busy, group.nodes)) for group in self._groups}
        for group in sorted(self._groups, key=lambda group: (busy[id(group)], group.was_granted)):
            if len(group.nodes) > surplus:
                continue
            surplus -= _sound(group, doubted)
            if busy[id(group)]:
                self._too_much.append(group)
            else:
                self._give_back(group)

    def _give_back_lost(self, doubted: Collection[str], going: Collection[str], is_busy: Callable[[str], bool]) -> None:
        """A node that is only doubted may turn out to be there: what is held on it is given up for other room, but not
        for the hope of it."""
        is_covered = sum(_sound(group, doubted) for group in self._groups if group.was_granted) >= self._demand.most
        for group in [group for group in self._groups if group.was_granted and not _sound(group, doubted)]:
            left = [node for node in group.nodes if node]
            if not any(map(is_busy, left)) and (is_covered or all(node in going for node in left)):
                self._give_back(group)

    def release(self) -> None:
        for group in self._groups:
            group.remove()
        self._groups.clear()

    def _give_back(self, group: Reservation) -> None:
        self._groups.remove(group)
        group.remove()

    def _reserve(self, count: int, avoiding: Collection[str]) -> Reservation:
        demand = self._demand
        labels = [demand.labels_of(self._numbered + i) for i in range(count)] if demand.labels else []
        self._numbered += count
        strategy = demand.strategy if count > 1 else "PACK"
        return Reservation(f"{self._name}:{self._numbered}", [demand.resources] * count, strategy, labels, avoiding)


def _sound(group: Reservation, doubted: Collection[str]) -> int:
    """The seats that it has or will have."""
    if not group.was_granted:
        return len(group.nodes)
    return sum(1 for node in group.nodes if node and node not in doubted)
