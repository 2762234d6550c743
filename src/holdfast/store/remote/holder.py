"""Which process drives a run, and whether that process is surely dead: only its own machine can say so."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from holdfast.store.times import utc_text


class Holder(msgspec.Struct, frozen=True):
    host: str
    boot: str  # of the machine and of its process numbers; "" where neither is known
    pid: int
    started: str  # in the kernel's ticks: a later process may get the same number
    token: str
    since: float

    def __str__(self) -> str:
        since = utc_text(self.since)
        return f"process {self.pid} on {self.host}{f' since {since}' if since else ''}"

    @property
    def is_dead(self) -> bool:
        """False if this is not known."""
        return self._is_of_this_machine and _started(self.pid) != self.started

    @property
    def is_alive(self) -> bool:
        """False if this is not known."""
        return self._is_of_this_machine and _started(self.pid) == self.started

    @property
    def is_running(self) -> bool:
        """Whether it is alive and not stopped (SIGSTOP): a stopped one does nothing until somebody continues it."""
        return self.is_alive and _state(self.pid) not in (b"T", b"t")

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
    """Containers of one machine share its boot, but a process number means something else in each."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """ "" if there is no such process, or none that still runs."""
    fields = _stat(pid)
    return "" if fields[0] in (b"", b"Z", b"X") else fields[19].decode()


def _state(pid: int) -> bytes:
    return _stat(pid)[0]


def _stat(pid: int) -> list[bytes]:
    """What /proc/PID/stat has behind the name: the state, the parent, ..., the start time; else an empty state."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return [b""]
