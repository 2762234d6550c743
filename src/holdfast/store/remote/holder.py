"""Which process drives a run, and whether that process is certainly dead. Only its own machine can know that."""

from __future__ import annotations

import os
import socket

import msgspec

from holdfast.platform.processes import ENDED, boot_id, namespace, start_time, state
from holdfast.store.times import utc_text


class Holder(msgspec.Struct, frozen=True):
    host: str
    boot: str  # identifies the machine's boot and its process numbers; "" if unknown
    pid: int
    started: str  # start time in kernel ticks, because a later process may get the same number
    token: str
    since: float

    def __str__(self) -> str:
        since = utc_text(self.since)
        return f"process {self.pid} on {self.host}{f' since {since}' if since else ''}"

    @property
    def is_dead(self) -> bool:
        """False if unknown."""
        return self._is_of_this_machine and _started(self.pid) != self.started

    @property
    def is_alive(self) -> bool:
        """False if unknown."""
        return self._is_of_this_machine and _started(self.pid) == self.started

    @property
    def is_running(self) -> bool:
        """Whether it is alive and not stopped (SIGSTOP). A stopped process does nothing until it is continued."""
        return self.is_alive and state(self.pid) not in ("T", "t")

    @property
    def is_this_process(self) -> bool:
        return self.pid == os.getpid() and self.is_alive

    @property
    def _is_of_this_machine(self) -> bool:
        return bool(self.boot) and (self.host, self.boot) == (socket.gethostname(), _boot())


def this_process(token: str, since: float) -> Holder:
    pid = os.getpid()
    return Holder(socket.gethostname(), _boot(), pid, _started(pid), token, since)


def _boot() -> str:
    """Identifies boot and namespace: containers of one machine share its boot, but have their own process numbers."""
    boot, processes_of = boot_id(), namespace("pid")
    return f"{boot} {processes_of}" if boot and processes_of else ""


def _started(pid: int) -> str:
    """ "" if there is no such process, or it has exited."""
    return "" if state(pid) in ENDED else start_time(pid)
