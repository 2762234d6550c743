"""Capacity on a cluster, which grants it on request: one reservation for all bundles of a trial, granted as a whole.

Resources of a finished trial are reused by the next trial with the same request. Resources that are not needed for a
while are returned to the cluster; immediately, if a trial with another request waits.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.engine_interface import GrantedSeat, Granting
from holdfast.tune.experiment.capacity import PLAIN, BundlePlacement, Bundles, Share, Shares, what_lacks
from holdfast.tune.resources import total
from holdfast.wire.messages import NodeReady, Seat

_KEPT_S = 1.0  # free and not needed: the next trial may be about to start
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True)
class GrantKind:
    bundles: tuple[tuple[tuple[str, float], ...], ...]
    strategy: str
    labels: tuple[tuple[tuple[str, str], ...], ...]
    besides: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, bundles: Bundles, placement: BundlePlacement) -> GrantKind:
        labels = tuple(_items(selector) for selector in placement.labels)
        return cls(tuple(_items(bundle) for bundle in bundles), placement.strategy, labels, _items(placement.besides))


@dataclass
class Grant:
    """A reservation, and what of it is granted and used."""

    key: str
    kind: GrantKind
    seats: dict[int, tuple[str, GrantedSeat]] = field(default_factory=dict)  # by bundle: the node, and its share
    used: set[int] = field(default_factory=set)  # bundles that a trial has
    is_broken: bool = False  # it was complete and has lost a part
    kept_since: float = math.inf  # when it was last seen free, or was needed and not available

    @property
    def is_whole(self) -> bool:
        return len(self.seats) == len(self.kind.bundles)


class GrantedCapacity:
    is_granted = is_settled = True

    def __init__(self, session: Granting, clock: Callable[[], float] = time.monotonic) -> None:
        self._session, self._clock = session, clock
        self._grants: dict[str, Grant] = {}
        self._wanted: Counter[GrantKind] = Counter()  # since they were last counted
        self._kinds: set[GrantKind] = set()  # of all trials so far
        self._leaving: set[str] = set()  # nodes that will go away
        self._numbers = itertools.count(1)
        self._settled: Any = None
        self._settle_at = 0.0

    # Trials

    def place(self, bundles: Bundles, placement: BundlePlacement = PLAIN) -> Shares | None:
        kind = GrantKind.of(bundles, placement)
        grant = next((g for g in self._grants.values() if g.kind == kind and self._is_free(g)), None)
        if grant is not None:
            return self._taken((grant, number) for number in grant.seats)
        loose = self._loose(kind)
        if loose is not None:
            return self._taken(iter(loose))
        self._wanted[kind] += 1
        return None

    def expect(self, bundles: Bundles, placement: BundlePlacement, count: int) -> None:
        """Whether trials have different requests: the next trial may then need something else."""
        kind = GrantKind.of(bundles, placement)
        self._kinds.add(kind)
        if len(self._kinds) == 1:
            self._wanted[kind] += max(0, count)

    def give_back(self, shares: Mapping[str, Share]) -> None:
        for seat in (seat for share in shares.values() for seat in share.seats):
            grant = self._grants.get(seat.key) if isinstance(seat, GrantedSeat) else None
            if grant is not None and isinstance(seat, GrantedSeat):
                grant.used.discard(seat.bundle)
                self._let_go_if_broken(grant)
        self._settle_at = 0.0

    def lacking(self, shares: Mapping[str, Share], bundles: Bundles) -> list[Mapping[str, float]]:
        return what_lacks([share for id, share in shares.items() if id not in self._leaving], bundles)

    def can_ever(self, bundles: Bundles) -> bool:
        return True  # nodes may join

    def total(self) -> dict[str, float]:
        bundles = (dict(grant.kind.bundles[number]) for grant in self._grants.values() for number in grant.seats)
        return total(bundles)

    def _is_free(self, grant: Grant) -> bool:
        return grant.is_whole and not grant.used and not grant.is_broken and not self._is_leaving(grant)

    def _is_leaving(self, grant: Grant) -> bool:
        return any(node in self._leaving for node, _ in grant.seats.values())

    def _loose(self, kind: GrantKind) -> list[tuple[Grant, int]] | None:
        """Resources that the cluster has granted again for broken reservations, for the trials that lost a part of
        them."""
        found: list[tuple[Grant, int]] = []
        for wanted in kind.bundles:
            seat = next((seat for seat in self._loose_seats(wanted) if seat not in found), None)
            if seat is None:
                return None
            found.append(seat)
        return found

    def _loose_seats(self, bundle: tuple[tuple[str, float], ...]) -> Iterator[tuple[Grant, int]]:
        for grant in self._grants.values():
            for number, (node, _) in grant.seats.items() if grant.is_broken else ():
                if number not in grant.used and node not in self._leaving and grant.kind.bundles[number] == bundle:
                    yield grant, number

    def _taken(self, places: Iterator[tuple[Grant, int]]) -> Shares:
        shares: Shares = {}
        for grant, number in places:
            node, seat = grant.seats[number]
            grant.used.add(number)
            shares.setdefault(node, Share()).add(Share(dict(grant.kind.bundles[number]), [seat]))
        return shares

    # The cluster

    def settle(self) -> None:
        """Request what was missing, and return what is not needed."""
        now = self._clock()
        wanted, self._wanted = self._wanted, Counter()
        if wanted == self._settled and now < self._settle_at:
            return
        self._settled, self._settle_at = wanted, now + _LOOK_EVERY_S
        spare: dict[GrantKind, list[Grant]] = {kind: [] for kind in wanted}
        for grant in self._grants.values():
            if not grant.used and not grant.is_broken:
                spare.setdefault(grant.kind, []).append(grant)
        waits = {kind for kind, count in wanted.items() if count > sum(map(self._is_free, spare[kind]))}
        for kind, grants in spare.items():
            self._keep(grants, wanted[kind], now, now if waits - {kind} else now - _KEPT_S)
            for _ in range(wanted[kind] - len(grants)):
                self._reserve(kind)

    def _keep(self, grants: list[Grant], wanted: int, now: float, since: float) -> None:
        """Keep the wanted number of reservations, granted ones first. Return the others if they were not needed for a
        while."""
        in_order = sorted(grants, key=lambda grant: not self._is_free(grant))
        for grant in in_order[:wanted]:
            grant.kept_since = math.inf
        for grant in in_order[wanted:]:
            grant.kept_since = min(grant.kept_since, now)
            if grant.kept_since <= since:
                self._let_go(grant)

    def _reserve(self, kind: GrantKind) -> None:
        grant = Grant(f"{next(self._numbers)}", kind)
        self._grants[grant.key] = grant
        bundles = [{**dict(bundle), **dict(kind.besides)} for bundle in kind.bundles]
        self._session.reserve(grant.key, bundles, kind.strategy, [dict(selector) for selector in kind.labels])

    def _let_go(self, grant: Grant) -> None:
        del self._grants[grant.key]
        self._session.give_back(grant.key)

    def _let_go_if_broken(self, grant: Grant) -> None:
        """Whether a reservation can be returned: not while a trial uses a part of it, because the cluster would give
        that part to another job."""
        if (grant.is_broken or self._is_leaving(grant)) and not grant.used and grant.key in self._grants:
            self._let_go(grant)

    # Nodes

    def joining(self, node: str) -> None:
        pass

    def ready(self, message: NodeReady) -> None:
        self._leaving.discard(message.node_id)
        self.seat(message.node_id, message.seats or ())

    def seat(self, node: str, seats: Sequence[Seat]) -> None:
        there = {(seat.key, seat.bundle): seat for seat in seats if isinstance(seat, GrantedSeat)}
        for grant in list(self._grants.values()):
            gone = [b for b, (home, _) in grant.seats.items() if home == node and (grant.key, b) not in there]
            self._take_away(grant, gone)
        for (key, bundle), seat in there.items():
            if key in self._grants:
                self._grants[key].seats[bundle] = (node, seat)

    def drain(self, node: str) -> None:
        self._leaving.add(node)
        for grant in list(self._grants.values()):
            self._let_go_if_broken(grant)

    def lost(self, node: str) -> None:
        self._leaving.discard(node)
        for grant in list(self._grants.values()):
            self._take_away(grant, [bundle for bundle, (home, _) in grant.seats.items() if home == node])

    def _take_away(self, grant: Grant, bundles: Sequence[int]) -> None:
        for bundle in bundles:
            grant.is_broken = grant.is_broken or grant.is_whole
            del grant.seats[bundle]
        if bundles:
            self._let_go_if_broken(grant)


def _items(mapping: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(mapping.items()))
