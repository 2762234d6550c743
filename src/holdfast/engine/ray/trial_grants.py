"""What Ray has granted to an experiment: reservations, each for all bundles of a trial, as one placement group. The
experiment requests and returns them from its own thread. Only the thread that polls the cluster talks to Ray.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.engine.engine_interface import GrantedSeat
from holdfast.engine.ray.reservation import Reservation, is_doubtful, look_at_some, remove_all
from holdfast.wire.messages import Seat


@dataclass(frozen=True)
class GrantRequest:
    bundles: Sequence[Mapping[str, float]]
    strategy: str
    labels: Sequence[Mapping[str, str]]


class TrialGrants:
    def __init__(self, name: str) -> None:
        self._name = f"{name}:{secrets.token_hex(3)}"
        self._lock = threading.Lock()
        self._asked: dict[str, GrantRequest] = {}  # what there should be, by key
        self._there: dict[str, Reservation] = {}
        self._told: set[str] = set()  # granted as a whole, and shown
        self._had: set[str] = set()  # those of them that the experiment knows of, so that a trial may be there
        self._turn = 0
        self._alive: set[str] = set()

    # Calls of the experiment

    def reserve(self, key: str, asked: GrantRequest) -> None:
        with self._lock:
            self._asked[key] = asked

    def give_back(self, key: str) -> None:
        with self._lock:
            self._asked.pop(key, None)

    # What Ray reports

    def look(self, alive: Collection[str]) -> None:
        self._alive = set(alive)
        for key in self._told:
            self._there[key].look(alive)
        waiting = [reservation for key, reservation in self._there.items() if key not in self._told]
        self._turn = look_at_some(waiting, alive, self._turn)

    def nodes(self) -> set[str]:
        """Nodes on which the experiment has at least a part of its resources, even if they cannot be shown yet."""
        return {node for reservation in self._there.values() for node in reservation.nodes if node}

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

    def balance(self, doubted: Collection[str], going: Collection[str], is_busy: Callable[[str], bool]) -> bool:
        """Request what has not been requested yet. Request again what was granted on a node that is lost or will be, or
        was not granted while an existing node was doubted. Returns whether anything was requested."""
        with self._lock:
            asked = dict(self._asked)
        for key in [key for key in self._there if key not in asked]:
            self._remove(key)
        for key, reservation in list(self._there.items()):
            in_vain = not reservation.was_granted and reservation.avoids(self._alive - set(doubted))
            lost = any(is_doubtful(reservation, index, doubted) for index in range(len(reservation.nodes)))
            if in_vain or (lost and key not in self._had):
                self._remove(key)
        missing = {key: room for key, room in asked.items() if key not in self._there}
        for key, room in missing.items():
            name = f"{self._name}:{key}"
            self._there[key] = Reservation(name, room.bundles, room.strategy, room.labels, doubted)
        return bool(missing)

    def note_shown(self, ready: Collection[str]) -> None:
        """The experiment learns of seats when their nodes are ready. If no agent can be started there, it never
        does."""
        self._had.update(key for key in self._told if all(node in ready for node in self._there[key].nodes))

    def release(self) -> None:
        remove_all(self._there.values())

    def _remove(self, key: str) -> None:
        self._there[key].remove()
        self._told.discard(key)
        self._had.discard(key)
        del self._there[key]
