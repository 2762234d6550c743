"""A cache of things that were made for runs. It keeps a bounded number: those that were used last.

Each thing belongs to a run's id, because a run may be deleted and another one started under its name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._known: OrderedDict[str, tuple[str, T]] = OrderedDict()

    def use(self, key: str, id: str, make: Callable[[], T]) -> T:
        with self._lock:
            if key not in self._known or self._known[key][0] != id:
                self._known[key] = id, make()
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return self._known[key][1]
