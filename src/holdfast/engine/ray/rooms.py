"""What Ray has granted to an experiment: rooms, each for all bundles of a trial, as one placement group.

They are asked for and given back by the experiment, from its thread. Ray is spoken to by the thread that looks at the
cluster, and only by it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast.engine.base import GrantedSeat
from holdfast.wire.messages import Seat

from .reservation import Reservation

_MOST_LOOKED_AT = 32  # that are not granted: Ray grants about in the order in which it was asked


@dataclass(frozen=True)
class Asked:
    bundles: Sequence[Mapping[str, float]]
    strategy: str
    labels: Sequence[Mapping[str, str]]


class Rooms:
    def __init__(self, name: str) -> None:
        self._name = f"{name}:{secrets.token_hex(3)}"
        self._lock = threading.Lock()
        self._asked: dict[str, Asked] = {}  # what there should be, by key
        self._there: dict[str, Reservation] = {}
        self._told: set[str] = set()  # whose seats the experiment knows

    # What the experiment says

    def reserve(self, key: str, asked: Asked) -> None:
        with self._lock:
            self._asked[key] = asked

    def give_back(self, key: str) -> None:
        with self._lock:
            self._asked.pop(key, None)

    # What Ray says

    @property
    def is_waiting(self) -> bool:
        return len(self._told) < len(self._asked) or len(self._there) > len(self._asked)

    def look(self, alive: Collection[str]) -> None:
        waiting = (reservation for reservation in self._there.values() if not reservation.is_whole)
        granted = [reservation for reservation in self._there.values() if reservation.is_whole]
        for reservation in (*islice(waiting, _MOST_LOOKED_AT), *granted):
            reservation.look(alive)

    def by_node(self) -> dict[str, list[Seat]]:
        found: dict[str, list[Seat]] = {}
        for key, reservation in self._there.items():
            gpus = [reservation.gpus(index) for index in range(len(reservation.nodes))]
            if key not in self._told and reservation.is_whole and None not in gpus:
                self._told.add(key)
            for index, node in enumerate(reservation.nodes) if key in self._told else ():
                own = gpus[index]
                if node and own is not None:
                    found.setdefault(node, []).append(GrantedSeat(own, key, index))
        return found

    def balance(self, doubted: Collection[str], is_busy: Callable[[str], bool]) -> None:
        """Ask Ray for what it was not asked for yet, and for what it has granted on a node that is lost or will be."""
        with self._lock:
            asked = dict(self._asked)
        for key in [key for key in self._there if key not in asked]:
            self._remove(key)
        for key, reservation in list(self._there.items()):
            if key not in self._told and any(node in doubted for node in reservation.nodes):
                self._remove(key)
        for key, room in asked.items():
            if key not in self._there:
                name = f"{self._name}:{key}"
                self._there[key] = Reservation(name, room.bundles, room.strategy, room.labels, doubted)

    def release(self) -> None:
        for key in list(self._there):
            self._remove(key)

    def _remove(self, key: str) -> None:
        self._there[key].remove()
        self._told.discard(key)
        del self._there[key]
