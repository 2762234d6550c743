"""The resources that Ray has granted to a run: seats, each for one worker, held by placement groups.

The minimum number of workers is one group, which Ray grants as a whole. Each further seat is a separate group, and so
is each one that replaces a seat on a node that is lost or will be. A group that is no longer useful is returned, before
Ray reserves the same for it elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection

from holdfast.engine.demand import Demand
from holdfast.engine.ray.reservation import Reservation, is_doubtful, look_at_some, remove_all
from holdfast.wire.messages import Seat

Labels = dict[str, str]  # that a seat's node must have


class WorkerGrants:
    def __init__(self, demand: Demand, name: str) -> None:
        self._demand, self._name = demand, f"{name}:{secrets.token_hex(3)}"
        self._least, self._most = max(1, demand.least), demand.most
        self.has_begun = False  # the first group was granted
        self._numbered = self._turn = 0
        self._alive: set[str] = set()
        self._groups = [self._reserve(self._labels[: self._least], ())]
        self._too_much: list[Reservation] = []  # those of them that no worker may use any more

    # Current seats

    def look(self, alive: Collection[str]) -> None:
        """Record what was granted, and what was lost with its node."""
        self._alive = set(alive)
        for group in self._groups:
            if group.was_granted:
                group.look(alive)
        self._turn = look_at_some([group for group in self._groups if not group.was_granted], alive, self._turn)
        self.has_begun = self.has_begun or self._groups[0].is_whole

    def nodes(self) -> set[str]:
        """Nodes with seats, even if these cannot be shown yet."""
        return {node for group in self._groups for node in group.nodes if node} if self.has_begun else set()

    def by_node(self) -> dict[str, list[Seat]]:
        """The seats for the next workers."""
        found: dict[str, list[Seat]] = {}
        for group in (group for group in self._groups if group not in self._too_much):
            for index, node in enumerate(group.nodes):
                gpus = group.gpus(index) if node and self.has_begun else None
                if gpus is not None:
                    found.setdefault(node, []).append(Seat(gpus))
        return found

    # What there should be

    def balance(self, doubted: Collection[str], going: Collection[str], is_busy: Callable[[str], bool]) -> bool:
        """Request as many seats as the run may have, not counting those on nodes that are lost or will be; withdraw the
        excess, unless a worker sits there. Returns whether any were requested."""
        if not self.has_begun:
            return False  # otherwise a part of what the whole group needs would be taken from it
        self._give_back_lost(doubted, going, is_busy)
        self._withdraw_in_vain(doubted)
        missing, _ = self._compare(doubted)
        self._ask_for(missing, doubted)
        self._shed(doubted, is_busy)
        return bool(missing)

    def _compare(self, doubted: Collection[str]) -> tuple[list[Labels], list[Labels]]:
        """The labels of seats that the run may have and no group has or will have, and of those that are too many."""
        missing, too_many = list(self._labels), []
        for labels in (labels for group in self._groups for labels in _sound(group, doubted)):
            if labels in missing:
                missing.remove(labels)
            else:
                too_many.append(labels)
        return missing, too_many

    def _ask_for(self, missing: list[Labels], doubted: Collection[str]) -> None:
        """Request seats one by one, except those that are useful only together."""
        together = self._together(doubted)
        if any(len(group.nodes) == together for group in self._groups if not group.was_granted):
            together = 0  # that is asked for
        avoiding = {*doubted, *self._taken()}
        first, others = missing[:together], missing[together:]
        made = [self._reserve(labels, avoiding) for labels in (first, *([label] for label in others)) if labels]
        self._groups += made

    def _together(self, doubted: Collection[str]) -> int:
        """How many seats that are not granted yet have to be granted as a whole. A run that has none left begins again;
        where no two may share a node, those of a run that needs them all go together."""
        granted = self._granted(doubted)
        if not granted:
            return self._least
        return self._most - granted if self._is_strict and self._least == self._most else 1

    def _withdraw_in_vain(self, doubted: Collection[str]) -> None:
        """What waits and would be asked for otherwise now: a node that it avoids turned out to be there, or more seats
        have to be granted as a whole, or fewer."""
        there, together = self._alive - set(doubted) - self._taken(), self._together(doubted)
        waiting = [group for group in self._groups if not group.was_granted]
        begins_anew = together > 1 and all(len(group.nodes) != together for group in waiting)
        for group in waiting:
            if begins_anew or len(group.nodes) not in (1, together) or group.avoids(there):
                self._give_back(group)

    def _shed(self, doubted: Collection[str], is_busy: Callable[[str], bool]) -> None:
        """Return seats beyond the maximum of the run: granted ones after the driver knows that they can no longer be
        used, and no worker sits there."""
        told, self._too_much = self._too_much, []
        _, too_many = self._compare(doubted)
        busy = {id(group): any(map(is_busy, group.nodes)) for group in self._groups}
        for group in sorted(self._groups, key=lambda group: (busy[id(group)], group.was_granted)):
            left = _without(too_many, _sound(group, doubted))
            if left is None or len(group.nodes) > len(too_many):
                continue
            too_many = left
            if busy[id(group)] or (group.was_granted and group not in told):
                self._too_much.append(group)
            else:
                self._give_back(group)

    def _give_back_lost(self, doubted: Collection[str], going: Collection[str], is_busy: Callable[[str], bool]) -> None:
        """A suspect node may turn out to be fine. A seat on it is returned only when another seat has been granted."""
        is_covered = self._granted(doubted) >= self._most
        for group in [group for group in self._groups if group.was_granted and not _sound(group, doubted)]:
            left = [node for node in group.nodes if node]
            if not any(map(is_busy, left)) and (is_covered or all(node in going for node in left)):
                self._give_back(group)

    def release(self) -> None:
        remove_all(self._groups)

    def _give_back(self, group: Reservation) -> None:
        group.remove()
        self._groups.remove(group)

    @property
    def _labels(self) -> list[Labels]:
        """Of all seats that the run may have, its first ones first."""
        return [self._demand.labels_of(worker) for worker in range(self._most)]

    @property
    def _is_strict(self) -> bool:
        return self._demand.strategy == "STRICT_SPREAD"

    def _taken(self) -> set[str]:
        """Nodes on which no other seat may be."""
        return {node for group in self._groups for node in group.nodes if node} if self._is_strict else set()

    def _granted(self, doubted: Collection[str]) -> int:
        return sum(len(_sound(group, doubted)) for group in self._groups if group.was_granted)

    def _reserve(self, labels: list[Labels], avoiding: Collection[str]) -> Reservation:
        """As many seats as there are labels."""
        self._numbered += len(labels)
        strategy = self._demand.strategy if len(labels) > 1 else "PACK"
        bundles = [self._demand.resources] * len(labels)
        return Reservation(f"{self._name}:{self._numbered}", bundles, strategy, labels, avoiding)


def _sound(group: Reservation, doubted: Collection[str]) -> list[Labels]:
    """The labels of the seats that it has or will have."""
    if not group.was_granted:
        return group.labels
    there = (seat for seat, node in enumerate(group.nodes) if node and not is_doubtful(group, seat, doubted))
    return [group.labels[seat] for seat in there]


def _without(all: list[Labels], some: list[Labels]) -> list[Labels] | None:
    """None if not all of them exist."""
    left = list(all)
    for labels in some:
        if labels not in left:
            return None
        left.remove(labels)
    return left
