"""A process tree that is killed as a whole. Nothing in it can escape by forking, and its end is observed, not assumed.
Linux only; on other systems, process groups are used instead.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time

from holdfast.platform import process_control, processes

_STANDSTILL_S = 0.2  # how long to wait until processes have stopped; one in a system call may take longer


class ProcessTree:
    """The roots and all processes found below them. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[int, int] = {}  # pid -> a file descriptor that becomes readable when it exits
        self._zombies: dict[int, int] = {}  # the same for processes that had ended when they were found
        self._closed = False

    def add(self, pid: int) -> None:
        """Add a root. One that has already exited is not part of the tree."""
        with self._lock:
            self._forget_ended()
            self._open(pid)

    def add_children(self, pid: int) -> None:
        """Add children of a root. They stay known after the root has exited and they have another parent."""
        with self._lock:
            for child in processes.children(pid) if pid in self._ends else ():
                self._open(child)

    def kill(self) -> None:
        """Kill the whole tree at the same time. The processes are stopped first: the children of a killed process get
        another parent, and could no longer be identified."""
        with self._lock:
            if process_control.LINUX:
                with contextlib.suppress(OSError):  # at the limit of open files, processes cannot be inspected
                    self._stop_all()
            for pid in self._ends:
                process_control.kill_group(pid)

    def wait(self, within_s: float) -> list[int]:
        """Wait until all have exited; returns those that have not. A child of this process leaves no zombie."""
        deadline = time.monotonic() + within_s
        with self._lock:
            ends, zombies = dict(self._ends), list(self._zombies.values())
        left = [pid for pid, fd in ends.items() if not _has_ended(fd, max(0.0, deadline - time.monotonic()))]
        for fd in (*ends.values(), *zombies):
            with contextlib.suppress(OSError):
                os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG)
        return left

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for fd in (*self._ends.values(), *self._zombies.values()):
                os.close(fd)
            self._ends.clear()
            self._zombies.clear()

    def _open(self, pid: int) -> bool:
        """Whether the process is new and alive."""
        known = pid in self._ends or pid in self._zombies
        if known or self._closed or not hasattr(os, "pidfd_open"):
            return False
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        lives = not _has_ended(fd, 0.0)
        (self._ends if lives else self._zombies)[pid] = fd
        return lives

    def _forget_ended(self) -> None:
        for pid in [pid for pid, fd in self._ends.items() if _has_ended(fd, 0.0)]:
            os.close(self._ends.pop(pid))
        for pid in [pid for pid in self._zombies if not processes.state(pid)]:  # it has been reaped already
            os.close(self._zombies.pop(pid))

    def _stop_all(self) -> None:
        deadline = time.monotonic() + _STANDSTILL_S
        while True:
            self._forget_ended()
            still = [self._stop(pid) for pid in list(self._ends)]
            found = [self._open(child) for pid in list(self._ends) for child in processes.children(pid)]
            if (all(still) and not any(found)) or time.monotonic() > deadline:
                return
            time.sleep(0.001)

    def _stop(self, pid: int) -> bool:
        """Whether the process has already stopped."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._ends[pid], signal.SIGSTOP)
        return processes.state(pid) in ("T", "t", "Z", "X", "")


def _has_ended(pidfd: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
