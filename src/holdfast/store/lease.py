"""One driver for a run: a kernel lock on lease.json, which ends with the process that holds it.

On Linux the lock belongs to the open file (F_OFD_SETLK). Nothing else that this process does with lease.json drops it,
and it excludes the POSIX lock of an older version, and vice versa. On other systems it is a POSIX lock, which is
dropped when this process closes any handle of the file. So the holder checks its lease before it writes (``check``),
and takes the lock again if it can. A forked child closes its copy of the open file; otherwise it would keep the run
locked.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from holdfast.errors import RunInUseError, StorageError
from holdfast.store import values
from holdfast.store.disk import Disk, ensure_dir, write_atomic
from holdfast.store.interfaces import DriverLease, LivingDriver
from holdfast.store.journal import JournalFile, Record
from holdfast.store.layout import RunLayout
from holdfast.store.regular import open_regular, read_whole
from holdfast.store.sealed import Damage, seal, unseal
from holdfast.store.times import is_time, utc_text

_Identity = tuple[int, int]  # device and inode of a file or directory

_OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # Linux's struct flock
_IS_BSD = sys.platform == "darwin"
_FLOCK = "qqihh" if _IS_BSD else "hhqqi0q"  # start, length, pid, type, whence; elsewhere type and whence come first
_REFUSED = frozenset({errno.EACCES, errno.EAGAIN})
_MOST = 1 << 16  # bytes of lease.json that are read
_LARGEST_SEGMENT = 4 << 30  # bytes
_CHILD_CLOSES_WITHIN_S = 1.0  # a child that the last holder forked right before it exited may still hold the lock

_table_lock = threading.RLock()
_held: dict[_Identity, Lease] = {}
os.register_at_fork(
    before=lambda: _table_lock.acquire(),  # so that a child knows every file that it has to close
    after_in_parent=lambda: _table_lock.release(),
    after_in_child=lambda: _forget_held(),
)


class Lease(DriverLease):
    """The right to write a run, held until ``release()`` or the end of the process."""

    def __init__(self, layout: RunLayout, epoch: int, file: io.FileIO) -> None:
        self.epoch = epoch
        self._layout = layout
        self._file = file
        self._identity = _identity(os.fstat(file.fileno()))
        self._root = _identity(os.stat(layout.root))
        self._path = layout.lease_file
        self._raw: bytes | None = None  # of the file, when it was last checked and belonged to this driver

    @classmethod
    def acquire(cls, layout: RunLayout, disk: Disk | None = None) -> Lease:
        """Take the lease with an epoch above all earlier ones, or raise a RunInUseError that says who holds it."""
        disk = disk or Disk()
        ensure_dir(disk, layout.root)
        with _table_lock:
            if _identity_at(layout.lease_file) in _held:
                raise _in_use(layout, "this same process")
            file = disk.open_in_place(layout.lease_file)
            try:
                _lock(file, layout)
                content = _content(file.fileno())
                lease = cls(layout, _next_epoch(layout, content), file)
                if not content:
                    _detach_newest_segment(layout, disk)
                disk.overwrite(file, _describe(lease.epoch))
                disk.fsync_dir(layout.root)
            except BaseException:
                file.close()
                raise
            _held[lease._identity] = lease
            return lease

    def open_journal(self) -> tuple[JournalFile, list[Record], list[Damage]]:
        return JournalFile.open(self._layout, self.epoch)

    def check(self) -> None:
        """If the lease is lost, raise an error that says what happened: this driver must not write any more.
        Thread-safe."""
        path = self._path
        if self._file.closed:
            raise RunInUseError(
                f"This process no longer holds the run in {self._layout.root}, so it cannot write to it."
            )
        try:
            found = _identity_at(path)
        except OSError:
            return  # storage does not answer; the write that follows reports that
        if found != self._identity:
            raise self._explain(path)
        try:
            _set_lock(self._file.fileno())
        except OSError as error:
            if error.errno in _REFUSED:
                raise self._taken_over(_content(self._file.fileno())) from None
        raw = _raw(self._file.fileno())
        if raw == self._raw:
            return
        content = _parsed(raw)
        if _epoch_in(content) > self.epoch:
            raise self._taken_over(content)
        self._raw = raw

    def release(self) -> None:
        """Allow another driver to start. In a forked child this does nothing: the parent keeps the lock."""
        with _table_lock:
            if _held.get(self._identity) is self:
                del _held[self._identity]
            self._file.close()

    def _explain(self, path: Path) -> RunInUseError | StorageError:
        root = self._layout.root
        if _identity_at(root) != self._root:
            return _displaced(root, self._file.fileno())
        try:
            with open_regular(path) as file:
                content = _content(file.fileno())
        except OSError:
            what = "deleted"
        else:
            if _epoch_in(content) >= self.epoch and _describes_another(content):
                return self._taken_over(content)
            what = "replaced"
        return RunInUseError(
            f"The lease.json of {root} was {what} while this driver held it, so another driver may have started. This "
            "driver stopped before its next write. If no other driver is running, run the same command again to resume."
        )

    def _taken_over(self, content: dict[str, Any]) -> RunInUseError:
        return RunInUseError(
            f"The run in {self._layout.root} has been taken over by {_holder(content)}. This driver stopped before its "
            "next write."
        )


def living_driver(layout: RunLayout) -> LivingDriver | None:
    """Who drives the run. This asks the kernel with F_GETLK, which takes no lock, so it never stops a driver from
    starting.

    F_GETLK sees locks of open files and POSIX locks. A lease of this process is not opened here: where the lock is a
    POSIX lock, closing lease.json would drop it.
    """
    with _table_lock:
        if _identity_at(layout.lease_file) in _held:
            return LivingDriver(os.getpid(), socket.gethostname())
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
            if owner is None:
                return None
            # The lock decides. The driver's note in the file only adds details, and may be half written.
            said = _content(file.fileno())
    if not said:
        return LivingDriver(owner if owner > 0 else None)
    return LivingDriver(said.get("pid"), said.get("host"), said.get("started"))


def _lock_owner(fd: int) -> int | None:
    """The process whose lock prevents a write lock; 0 or less if it is not a process of this system."""
    asked = (fcntl.F_WRLCK, os.SEEK_SET)
    question = struct.pack(_FLOCK, *((0, 0, 0, *asked) if _IS_BSD else (*asked, 0, 0, 0)))
    answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, question))
    kind, pid = (answer[3], answer[2]) if _IS_BSD else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else int(pid)


def _lock(file: io.FileIO, layout: RunLayout) -> None:
    deadline = time.monotonic() + _CHILD_CLOSES_WITHIN_S
    while True:
        try:
            _set_lock(file.fileno())
            return
        except OSError as error:
            if error.errno not in _REFUSED:
                raise StorageError(
                    f"The file system cannot lock {layout.lease_file}: {error.strerror}. Use a storage_path on a file "
                    "system with POSIX locks (on NFS, enable the lock service)."
                ) from error
        content = _content(file.fileno())
        if not _has_exited(content) or time.monotonic() > deadline:
            raise _in_use(layout, _holder_of(file, content))
        time.sleep(0.01)


def _set_lock(fd: int) -> None:
    """Set the lock, even if it is set already. OSError if another process holds it, or locks are not supported."""
    if _OFD_SETLK is not None:
        try:
            fcntl.fcntl(fd, _OFD_SETLK, _WHOLE_FILE)
            return
        except OSError as error:
            if error.errno != errno.EINVAL:  # otherwise the kernel or sandbox does not support such locks
                raise
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _content(fd: int) -> dict[str, Any]:
    """The content of the file; empty if it is new or damaged, because only the lock decides."""
    return _parsed(_raw(fd))


def _raw(fd: int) -> bytes:
    try:
        return os.pread(fd, _MOST, 0)
    except OSError:
        return b""


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        content = values.decode(unseal(raw.rstrip(b"\n")) or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _epoch_in(content: dict[str, Any]) -> int:
    epoch = content.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def _next_epoch(layout: RunLayout, content: dict[str, Any]) -> int:
    return max([_epoch_in(content), *(epoch for epoch, _ in layout.segments())]) + 1


def _detach_newest_segment(layout: RunLayout, disk: Disk) -> None:
    """After lease.json was deleted, its holder may still be alive, stopped in the middle of a write. Copy the segment
    to a new file, so that later writes of that driver into the old file are not part of the run."""
    for _, path in layout.segments()[-1:]:
        write_atomic(disk, path, read_whole(path, _LARGEST_SEGMENT))


def _describe(epoch: int) -> bytes:
    who = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time(), "epoch": epoch}
    return seal(values.encode(who))


def _describes_another(content: dict[str, Any]) -> bool:
    return "pid" in content and (content.get("host"), content["pid"]) != (socket.gethostname(), os.getpid())


def _holder(content: dict[str, Any]) -> str:
    if "pid" not in content or "host" not in content:
        return "another process"
    started = content.get("started", 0.0)
    since = f" since {utc_text(started)}" if is_time(started) else ""
    return f"process {content['pid']} on {content['host']}{since}"


def _has_exited(content: dict[str, Any]) -> bool:
    """Whether the holder that the file names ran on this machine and has exited."""
    pid = content.get("pid")
    if content.get("host") != socket.gethostname() or not isinstance(pid, int) or not os.path.isdir("/proc/self"):
        return False
    return not os.path.exists(f"/proc/{pid}")


def _holder_of(file: io.FileIO, content: dict[str, Any]) -> str:
    """The holder that the file names. If it has exited, also its children that still have the file open: a library
    forked them in C, so our code could not close the file there."""
    heirs = _processes_with(os.fstat(file.fileno())) - {os.getpid()} if _has_exited(content) else set()
    if not heirs:
        return _holder(content)
    named = ", ".join(map(str, sorted(heirs)))
    return f"{_holder(content)}, which has exited, but its children still have lease.json open. Kill them: {named}"


def _processes_with(status: os.stat_result) -> set[int]:
    """The processes of this user that have the file open, as far as the system reports them."""
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fds = (Path("/proc", name, "fd", fd) for fd in os.listdir(f"/proc/{name}/fd"))
            if any(_identity_at(fd) == _identity(status) for fd in fds):
                found.add(int(name))
        except OSError:
            continue  # it has exited, or belongs to another user
    return found


def _displaced(root: Path, fd: int) -> StorageError:
    """The error for a run directory that was moved or removed. Open files move with their directory."""
    where = _path_of(fd) if os.fstat(fd).st_nlink else None
    if where is not None:
        return StorageError(
            f"The run directory {root} was moved to {where.parent} while its driver was running, so the driver "
            f"stopped. Everything that was committed is there. Resume with storage_path={str(where.parent.parent)!r} "
            f"and name={where.parent.name!r}, or move it back."
        )
    return StorageError(
        f"The run directory {root} was removed, or moved to another file system, while its driver was running, so the "
        "driver stopped. Resume from its new place or from a copy. If there is none, the same command starts from the "
        "beginning."
    )


def _path_of(fd: int) -> Path | None:
    """The current path of an open file, if the system reports it."""
    try:
        if sys.platform == "darwin":
            path = Path(os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        else:
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        return path if _identity_at(path) == _identity(os.fstat(fd)) else None
    except OSError:
        return None


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _identity_at(path: Path) -> _Identity | None:
    try:
        return _identity(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _in_use(layout: RunLayout, holder: str) -> RunInUseError:
    return RunInUseError(
        f"The run in {layout.root} is being driven by {holder}. Wait until it ends or stop it, or give this run "
        f"another name (RunConfig(name=...))."
    )


def _forget_held() -> None:
    """Runs in a forked child."""
    global _table_lock
    _table_lock = threading.RLock()  # the thread that may hold the old lock does not exist here
    for lease in _held.values():
        lease._file.close()
    _held.clear()
