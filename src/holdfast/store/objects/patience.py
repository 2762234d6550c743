"""How long a failing request is retried: with jittered back-off, for a budget of seconds, until the store closes.

The budget counts from the first failure, so a long transfer that fails near its end is still retried.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StorageError, StorageUnavailableError
from holdfast.platform import interrupt
from holdfast.store.objects import verdicts

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0  # the end of an outage is noticed within this time

_T = TypeVar("_T")


class Patience:
    """A budget in seconds and the flag that ends all waiting. Threads share it; it holds no state of a single call."""

    def __init__(self, seconds: float, closed: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.closed = closed
        self._clock = clock

    def run(self, attempt: Callable[[], _T], judge: Callable[[Exception], StorageError]) -> _T:
        """Return what ``attempt`` returns. ``judge`` converts its exception to one of ours. A
        ``StorageUnavailableError`` or a subclass of it is retried; all others are raised immediately."""
        tries, began, delay = 0, 0.0, FIRST_DELAY_S
        while True:
            tries += 1
            self.check_open()
            try:
                return attempt()
            except Exception as error:
                failure, cause = judge(error), error
            if not isinstance(failure, StorageUnavailableError):
                raise failure from (None if failure is cause else cause)
            now = self._clock()
            began = began if tries > 1 else now
            left = began + self.seconds - now
            if left <= 0 or self.closed.is_set():
                text = f"{failure} (tried {tries} times, for {now - began:.1f} s). {verdicts.remedy(failure)}"
                raise type(failure)(text) from cause
            interrupt.wait(self.closed.wait, min(left, delay * random.uniform(0.5, 1.0)))
            delay = min(delay * 2, LONGEST_DELAY_S)

    def check_open(self) -> None:
        if self.closed.is_set():
            raise StorageUnavailableError("The store is closed.")
