"""Is a driver at work? Asked of the kernel with F_GETLK, which takes no lock, so that no starting driver is refused.

It sees locks of open files and POSIX locks. Where the lease is a POSIX lock, closing lease.json drops the one that this
process has on it, so a process that may drive runs must not ask.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from dataclasses import dataclass

from holdfast.errors import StorageError
from holdfast.store import values
from holdfast.store.layout import RunLayout
from holdfast.store.regular import open_regular
from holdfast.store.sealed import unseal

_IS_BSD = sys.platform == "darwin"
_FLOCK = "qqihh" if _IS_BSD else "hhqqi0q"  # start, length, pid, type, whence; elsewhere type and whence come first


@dataclass(frozen=True)
class LivingDriver:
    pid: int | None  # None where the lock's owner cannot be told
    host: str | None = None
    since: float | None = None


def living_driver(layout: RunLayout) -> LivingDriver | None:
    if "holdfast.driver.loop" in sys.modules:
        raise RuntimeError("a process that trains must not look at leases: run holdfast as a command of its own")
    try:
        file = open_regular(layout.lease_file)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise StorageError(f"{layout.lease_file} cannot be read: {error.strerror}") from error
    with file:
        owner = _lock_owner(file.fileno())
        return None if owner is None else _describe(owner, file.read(1 << 16) or b"")


def _lock_owner(fd: int) -> int | None:
    """The process whose lock is in the way of a write lock; 0 or less if it is none of this system's."""
    asked = (fcntl.F_WRLCK, os.SEEK_SET)
    question = struct.pack(_FLOCK, *((0, 0, 0, *asked) if _IS_BSD else (*asked, 0, 0, 0)))
    answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    kind, pid = (answer[3], answer[2]) if _IS_BSD else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else int(pid)


def _describe(owner: int, content: bytes) -> LivingDriver:
    """The lock counts; what the driver wrote about itself only adds to it, and may be half written just now."""
    said: object = None
    with contextlib.suppress(ValueError):
        said = values.decode(unseal(content.rstrip(b"\n")) or b"{}")
    if not isinstance(said, dict) or not said:
        return LivingDriver(owner if owner > 0 else None)
    return LivingDriver(said.get("pid"), said.get("host"), said.get("started"))
