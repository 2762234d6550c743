"""The place of a worker in its attempt. A standby has none yet: code that asks for it waits until the standby takes the
rank of a lost worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.wire.worker_messages import Place


class WorkerPlace:
    def __init__(self, place: Place | None, say_waiting: Callable[[], None]) -> None:
        """``say_waiting`` is called once, at the first wait for the place."""
        self._place, self._say_waiting = place, say_waiting
        self._has_said = False
        self._changed = threading.Condition()
        self._followers: list[Any] = []  # objects with a ``rank``
        self._calls: list[Callable[[], None]] = []

    @property
    def is_known(self) -> bool:
        return self._place is not None

    def get(self) -> Place:
        place = self._place
        return place if place is not None else self._wait()

    def _wait(self) -> Place:
        with self._changed:
            if not self._has_said and self._place is None:
                self._has_said = True
                self._say_waiting()
            # No timeout: the process exits with its agent.
            self._changed.wait_for(lambda: self._place is not None)
        assert self._place is not None
        return self._place

    def follow(self, holder: Any) -> None:
        """Set ``holder.rank`` when the place is known."""
        if self._place is None:
            self._followers.append(holder)

    def when_known(self, call: Callable[[], None]) -> None:
        """``call`` is called in another thread, before the threads that wait for the place continue."""
        self._calls.append(call)

    def take(self, place: Place) -> None:
        for holder in self._followers:
            holder.rank = place.rank
        with self._changed:
            self._place = place
            for call in self._calls:
                call()
            self._changed.notify_all()


class Placed:
    """The base of objects that know their place, or wait for it."""

    def __init__(self, place: Place | None, say_waiting: Callable[[], None]) -> None:
        self.place = WorkerPlace(place, say_waiting)

    @property
    def rank(self) -> int:
        return self.place.get().rank

    @property
    def local_rank(self) -> int:
        return self.place.get().local_rank

    @property
    def local_world_size(self) -> int:
        return self.place.get().local_world_size

    @property
    def node_rank(self) -> int:
        return self.place.get().node_rank

    @property
    def early_rank(self) -> int:
        """The rank for objects that learn it later (``place.follow``) if this is a standby."""
        return self.rank if self.place.is_known else 0
