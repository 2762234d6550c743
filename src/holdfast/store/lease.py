"""One driver for a run: a lock of the kernel on lease.json, which ends with the process that holds it.

The lock is a POSIX record lock: forked children do not inherit it, and nothing has to expire. It belongs to the
process, so two drivers in one process are kept apart by a table; and closing any handle of the file would drop it, so
nothing else may open lease.json.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import socket
import threading
import time
from typing import Any

from holdfast.errors import RunInUseError, StorageError
from holdfast.store import values
from holdfast.store.disk import Disk, ensure_dir
from holdfast.store.layout import RunLayout
from holdfast.store.sealed import seal, unseal

_table_lock = threading.Lock()
_held: dict[tuple[int, int, int], Lease] = {}  # by process id (a forked child holds nothing), device and inode
os.register_at_fork(after_in_child=lambda: _reset_table_lock())


class Lease:
    """The right to write a run, held until ``release()`` or the end of the process."""

    def __init__(self, epoch: int, file: io.FileIO, key: tuple[int, int, int]) -> None:
        self.epoch = epoch
        self._file = file
        self._key = key

    @classmethod
    def acquire(cls, layout: RunLayout, disk: Disk | None = None) -> Lease:
        """Take the lease with an epoch above all earlier ones, or raise RunInUseError that says who holds it."""
        disk = disk or Disk()
        ensure_dir(disk, layout.root)
        path = layout.lease_file
        with _table_lock:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(path)
                if (os.getpid(), found.st_dev, found.st_ino) in _held:
                    raise _in_use(layout, "this same process")
            file = disk.open_in_place(path)
            try:
                _lock(file, layout)
                status = os.fstat(file.fileno())
                key = os.getpid(), status.st_dev, status.st_ino
                lease = cls(_next_epoch(layout, _content(file)), file, key)
                disk.overwrite(file, _describe(lease.epoch))
                disk.fsync_dir(layout.root)
            except BaseException:
                file.close()
                raise
            _held[key] = lease
            return lease

    def release(self) -> None:
        """Let another driver in. In a forked child this changes nothing for the parent, which holds the lock."""
        with _table_lock:
            _held.pop(self._key, None)
            self._file.close()


def _lock(file: io.FileIO, layout: RunLayout) -> None:
    try:
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _in_use(layout, _holder(_content(file))) from None
        raise StorageError(
            f"The file system of {layout.lease_file} cannot lock it: {error.strerror}. Use a storage_path on a file "
            "system that has POSIX locks (on NFS: with its lock service on)."
        ) from error


def _content(file: io.FileIO) -> dict[str, Any]:
    """What the file says, or nothing if it is new or damaged: the lock is what counts."""
    file.seek(0)
    try:
        content = values.decode(unseal((file.readall() or b"").rstrip(b"\n")) or b"{}")
    except (ValueError, OSError):
        return {}
    return content if isinstance(content, dict) else {}


def _next_epoch(layout: RunLayout, content: dict[str, Any]) -> int:
    known = [epoch for epoch, _ in layout.segments()]
    if isinstance(content.get("epoch"), int):
        known.append(content["epoch"])
    return max(known, default=0) + 1


def _describe(epoch: int) -> bytes:
    who = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time(), "epoch": epoch}
    return seal(values.encode(who))


def _holder(content: dict[str, Any]) -> str:
    if "pid" not in content or "host" not in content:
        return "another process"
    started = content.get("started")
    since = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(started)) if isinstance(started, float) else ""
    return f"process {content['pid']} on {content['host']}{since}"


def _in_use(layout: RunLayout, holder: str) -> RunInUseError:
    return RunInUseError(
        f"The run in {layout.root} is being driven by {holder}. "
        "Wait until that ends or stop it, or give this run another name (RunConfig(name=...))."
    )


def _reset_table_lock() -> None:
    global _table_lock
    _table_lock = threading.Lock()  # the thread that may hold the old one does not exist in the child
