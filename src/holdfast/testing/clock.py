"""Virtual time: what is due is done in order, and nothing waits."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Of what is due at one time, what was asked for first comes first."""
        self._count += 1
        heappush(self._due, (when, self._count, call, args))

    def after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now + delay, call, *args)

    def forget_all(self) -> None:
        self._due.clear()

    def run_next(self) -> bool:
        """Do what is due next; False if nothing is."""
        if not self._due:
            return False
        when, _, call, args = heappop(self._due)
        self.now = when
        call(*args)
        return True
