"""The end of a worker whose train function has returned. As usual in Python, it waits for other threads and then runs
the exit functions. The rank counts as returned only after that, so nothing kills the process before."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast import settings

_TELL_AFTER_S = 10.0


@contextmanager
def limited(give_up: Callable[[], None]) -> Iterator[None]:
    """After ``HOLDFAST_EXIT_TIMEOUT_S``, call ``give_up`` and exit, even if threads still run."""
    limit_s, done = settings.load().exit_timeout_s, threading.Event()

    def watch() -> None:
        tell_after_s = min(_TELL_AFTER_S, limit_s)
        if done.wait(tell_after_s):
            return
        _tell(f"the train function returned; waiting up to {limit_s:g} s for {_names()} to end")
        if done.wait(limit_s - tell_after_s):
            return
        _tell(f"{_names()} did not end within {limit_s:g} s (HOLDFAST_EXIT_TIMEOUT_S): the process exits anyway")
        give_up()
        os._exit(0)

    threading.Thread(target=watch, name="holdfast-ending", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def join_threads() -> None:
    """End threads as the interpreter does when it exits: executors finish, and only daemon threads are left."""
    threading._shutdown()  # type: ignore[attr-defined]


def run_exit_functions() -> None:
    atexit._run_exitfuncs()


def _names() -> str:
    main = threading.main_thread()
    names = sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main)
    return f"the threads {', '.join(names)}" if names else "exit functions"


def _tell(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)
