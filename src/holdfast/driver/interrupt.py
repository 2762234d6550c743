"""SIGINT, SIGTERM and SIGHUP while a run is on: the first asks for a graceful stop, the second for one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handled(ask: Callable[[int, bool], None]) -> Iterator[None]:
    """Call ``ask(signal, at_once)`` for each signal; what was in force before is in force again afterwards. A signal
    that is ignored (as under nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        ask(number, asked > 1)

    # None: a handler of a host program's, which could not be put back
    heeded = [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
