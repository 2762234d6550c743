"""Virtual time: what is due is done in order, and nothing waits; and a driver's own clock, which may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Set
from heapq import heappop, heappush
from typing import Any

from holdfast.core.run.timers import Timer


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


class Timers:
    """The timers of a driver. Its clock may jump, or stand still for a while, and never goes back."""

    def __init__(self, clock: Clock, fired: Callable[[Timer], None]) -> None:
        self._clock, self._fired = clock, fired
        self._due: dict[Timer, tuple[int, float]] = {}  # its number, and when it is due
        self._count = 0
        self._skew = 0.0
        self._now = 0.0

    @property
    def pending(self) -> Set[Timer]:
        return self._due.keys()

    def tell(self) -> float:
        """The time, as far as the driver knows."""
        self._now = max(self._now, self._clock.now + self._skew)
        return self._now

    def jump(self, seconds: float) -> None:
        """Forward; or it stands still for so long."""
        self._skew += seconds
        for timer, (number, _) in self._due.items():
            self._clock.after(0.0, self._fire, timer, number)

    def set(self, timer: Timer, after_s: float) -> None:
        # Never at once: in real time a timer that is due in no time is still later than now.
        after_s = max(after_s, 0.001)
        self._count += 1
        self._due[timer] = (self._count, self.tell() + after_s)
        self._clock.after(after_s, self._fire, timer, self._count)

    def cancel(self, timer: Timer) -> bool:
        """Whether it was set."""
        return self._due.pop(timer, None) is not None

    def clear(self) -> None:
        self._due.clear()

    def _fire(self, timer: Timer, number: int) -> None:
        known, due = self._due.get(timer, (0, 0.0))
        if known != number:
            return
        if due - self.tell() > 1e-6:
            self._clock.at(due - self._skew, self._fire, timer, number)
        else:
            del self._due[timer]
            self._fired(timer)
