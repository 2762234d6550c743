"""The sockets that libraries opened in this process: lists them, and ends their connections."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

_FDS = Path("/proc/self/fd")
OpenSocket = tuple[int, int]  # file descriptor and inode


def open_sockets() -> list[OpenSocket]:
    """None if the system does not report it."""
    found: list[OpenSocket] = []
    for entry in os.listdir(_FDS) if _FDS.exists() else ():
        with contextlib.suppress(OSError):
            if os.readlink(_FDS / entry).startswith("socket:"):
                found.append((int(entry), os.fstat(int(entry)).st_ino))
    return found


def shut_down(sockets: list[OpenSocket]) -> None:
    """Shut down those that are TCP connections, so that threads that wait on them wake up. The files stay open: the
    library that opened them closes them."""
    for descriptor, inode in sockets:
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == inode:  # else it was closed, and another file has its number
                _shut_down(descriptor)


def _shut_down(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as own:
        is_tcp = own.family in (socket.AF_INET, socket.AF_INET6) and own.type == socket.SOCK_STREAM
        if is_tcp and not own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            own.shutdown(socket.SHUT_RDWR)
