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

from holdfast.store import values
from holdfast.store.layout import RunLayout
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
        fd = os.open(layout.lease_file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        owner = _lock_owner(fd)
        return None if owner is None else _describe(owner, os.read(fd, 1 << 16))
    finally:
        os.close(fd)


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
