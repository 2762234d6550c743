"""What workers do in these tests."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import time

from holdfast.testing.engine_runs import wait_for_ever as wait_for_ever
from holdfast.testing.engine_runs import wait_with_children as wait_with_children
from holdfast.worker import session

told = threading.Event()


def hold_the_interpreter() -> None:
    """In a C function that does not let go of it, so that no Python code can run, in no thread."""
    threading.Thread(target=_spin_in_a_thread, daemon=True).start()
    session.current().ready()
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(600)


def _spin_in_a_thread() -> None:
    while True:
        time.sleep(0.01)


def match_for_ever() -> None:
    session.current().ready()
    re.match(r"(a|aa)+$", "a" * 200 + "b")


def wait_until_told() -> None:
    session.current().ready()
    assert told.wait(60.0)


def report_and_return() -> int:
    session.current().ready()
    return 7


def eat_memory() -> None:
    """In the memory group whose directory is given."""
    with open(os.path.join(os.environ["TEST_CGROUP"], "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
    session.current().ready()
    eaten = []
    while True:
        eaten.append(bytearray(os.urandom(1 << 20)))


def be_killed() -> None:
    session.current().ready()
    os.kill(os.getpid(), signal.SIGKILL)
