"""Virtual time, in which due actions run in order and nothing waits, and a driver's own clock, which may be wrong."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from holdfast.driver.effects import Now


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Call the action at that time. Actions for the same time run in the order in which they were requested."""
        self._count += 1
        heappush(self._due, (when, self._count, call, args))

    def after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heappush(self._due, (self.now + delay, self._count, call, args))

    def forget_all(self) -> None:
        self._due.clear()

    def run_next(self) -> bool:
        """Run the next due action; False if there is none."""
        if not self._due:
            return False
        when, _, call, args = heappop(self._due)
        self.now = when
        call(*args)
        return True


class DriverClock:
    """The clock that a driver reads. It may jump or stop for a while, but never goes back. The wall clock may go
    back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._skew = 0.0
        self._now = 0.0
        self.wall_skew = 0.0

    def tell(self) -> Now:
        self._now = max(self._now, self._clock.now + self._skew)
        return Now(self._now, self._clock.now + self.wall_skew)

    def when(self, due: float) -> float:
        """The real time for a time of this clock, provided that it does not jump again."""
        return due - self._skew

    def jump(self, seconds: float) -> float:
        """Jump forward, or stand still for a while. Returns how far it jumped."""
        self._skew += seconds
        return seconds
