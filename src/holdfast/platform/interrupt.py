"""SIGINT, SIGTERM and SIGHUP during ``fit()``: the first asks for a graceful stop, the second for an immediate one.

While threads of ``fit()`` run, a signal raises nothing in the main thread: an exception between the start of a thread,
process or lease and the code that ends it would leak it. There are two exceptions: long waits, which call ``wait``, and
a second signal that arrives before a loop runs that could stop.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

Ask = Callable[[int, bool], None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_held: _Held | None = None  # of the main thread


class _Held:
    def __init__(self) -> None:
        self._came: list[int] = []
        self._ask: Ask | None = None
        self._is_waiting = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
        if self._ask is not None:
            self._ask(number, len(self._came) > 1)
        elif self._is_waiting or len(self._came) > 1:
            raise _exception(number)

    @contextmanager
    def passed_on(self, ask: Ask) -> Iterator[None]:
        """Pass each signal to ``ask``, including those that came before. From now on nothing is raised."""
        before, self._ask = self._ask, ask
        for place, number in enumerate(self._came if before is None else ()):
            ask(number, place > 0)
        try:
            yield
        finally:
            self._ask = before or ask  # in a nested ``fit()``, or while the rest is closed

    def wait(self, wait: Callable[[float], object], seconds: float) -> None:
        self._is_waiting = self._ask is None
        try:
            if self._came and self._is_waiting:
                raise _exception(self._came[0])
            wait(seconds)
        finally:
            self._is_waiting = False


@contextmanager
def held(in_process: bool = False) -> Iterator[None]:
    """Keep signals until ``handled`` names a handler; afterwards, the previous handlers are restored. A signal that is
    ignored (as under nohup) stays ignored.

    ``in_process``: the train function runs in the main thread. Only Python's own handler of SIGINT is replaced.
    Handlers that the user installed, and the other signals, stay as they are.
    """
    global _held
    if threading.current_thread() is not threading.main_thread() or _held is not None:
        yield
        return
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    if in_process:
        heeded = [number for number, handler in found.items() if handler is signal.default_int_handler]
    else:  # None: a handler that was installed in C, which cannot be restored
        heeded = [number for number, handler in found.items() if handler not in (signal.SIG_IGN, None)]
    mine = _Held()
    try:
        _held = mine
        for number in heeded:
            signal.signal(number, mine.handle)
        yield
    finally:
        _held = None
        for number in reversed(heeded):  # SIGINT last, because it raises again from here on
            signal.signal(number, found[number])


@contextmanager
def handled(ask: Ask, in_process: bool = False) -> Iterator[None]:
    """Call ``ask(signal, is_second)`` for each signal, including those that were ``held`` until now."""
    with held(in_process):
        in_force = _held if threading.current_thread() is threading.main_thread() else None
        with in_force.passed_on(ask) if in_force is not None else nullcontext():
            yield


def wait(wait: Callable[[float], object], seconds: float) -> None:
    """Call ``wait(seconds)``. The wait may be long and holds nothing that could leak, so a held signal ends it."""
    if _held is not None and threading.current_thread() is threading.main_thread():
        _held.wait(wait, seconds)
    else:
        wait(seconds)


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
