"""Every change that the store makes to a disk is one small method of ``Disk``, so that a test can crash at each
change."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.errors import StorageError, StorageFullError

_CHUNK = 4 << 20
_FICLONE = 0x40049409  # Linux: share the source's blocks instead of copying them (btrfs, XFS)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_MEANINGFUL = frozenset({errno.ENOENT, errno.EEXIST, errno.EXDEV})  # callers check for these, so they stay OSErrors


class Disk:
    """The disk operations of the store. Durable means that it survives a power cut."""

    def makedirs(self, path: Path) -> None:
        with _named("create the directory", path):
            os.makedirs(path, exist_ok=True)

    def make_private_dir(self, path: Path) -> None:
        """Create a directory, and those above it, that no other user can enter. If it exists and belongs to this user,
        it is closed to other users."""
        with _named("create the directory", path):
            os.makedirs(path.parent, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            if os.stat(path).st_mode & 0o077:
                with contextlib.suppress(PermissionError):
                    os.chmod(path, 0o700)

    def write_new(self, path: Path, data: bytes) -> None:
        """Create a file that must not exist yet, and make its content durable. ``fsync_dir`` makes its name durable."""
        with _named("write", path), open(path, "xb", buffering=0) as file:
            _write_all(file, data)
            _flush(file.fileno())

    def open_append(self, path: Path, *, new: bool) -> io.FileIO:
        """Open a file whose writes always go to its end. ``new``: it must not exist yet."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if new else 0)
        with _named("open", path):
            return io.FileIO(str(path), "ab", opener=lambda name, _flags: os.open(name, flags, 0o666))

    def open_in_place(self, path: Path) -> io.FileIO:
        """Open a file for reading and ``overwrite``. It is created if missing."""
        with _named("open", path):
            return io.FileIO(str(path), "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666))

    def append(self, file: io.FileIO, data: bytes) -> None:
        """Write at the end. This is not yet durable."""
        try:  # ``with`` would be slower, and each of ten thousand ranks has a line
            _write_all(file, data)
        except OSError as error:
            raise _explained("write", file.name, error) from error

    def reserve(self, file: io.FileIO, size: int) -> None:
        """Give a file at least that size, and reserve the space on disk after its content."""
        with _named("reserve space for", file.name):
            missing = size - os.fstat(file.fileno()).st_size
            if missing > 0:
                file.seek(0, io.SEEK_END)
                _write_all(file, bytes(missing))

    def sync(self, file: io.FileIO) -> None:
        with _named("sync", file.name):
            _flush(file.fileno())

    def sync_file_system(self, path: Path) -> bool:
        """Sync the whole file system of this directory. Returns whether the operating system can do that."""
        if sys.platform != "linux":
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        with _named("sync", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if libc.syncfs(fd) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)
        return True

    def truncate(self, file: io.FileIO, size: int) -> None:
        with _named("cut", file.name):
            os.ftruncate(file.fileno(), size)
            _flush(file.fileno())

    def overwrite(self, file: io.FileIO, data: bytes) -> None:
        """Replace the whole content in place, durably. Not atomic: only for a file that must keep its inode."""
        with _named("write", file.name):
            os.ftruncate(file.fileno(), 0)
            file.seek(0)
            _write_all(file, data)
            _flush(file.fileno())

    def fsync_file(self, path: Path) -> None:
        self._fsync(path, os.O_RDONLY)

    def fsync_dir(self, path: Path) -> None:
        """Make the names in a directory durable: what was created, renamed and removed in it."""
        self._fsync(path, os.O_RDONLY | os.O_DIRECTORY)

    def rename(self, source: Path | str, target: Path | str) -> None:
        try:  # ``with`` would be slower, and each of ten thousand ranks has a file
            os.rename(source, target)
        except OSError as error:
            if error.errno in _MEANINGFUL:
                raise
            raise _explained("rename to", target, error) from error

    def unlink(self, path: Path) -> None:
        with _named("remove", path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rmdir(self, path: Path | str) -> bool:
        """Remove a directory if it is empty. Returns whether it was."""
        try:
            os.rmdir(path)
        except OSError:
            return False
        return True

    def rmtree(self, path: Path) -> None:
        with _named("remove", path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def copy_file(self, source: Path, target: Path, *, sync: bool = True) -> None:
        """Copy the content into a new file, in the cheapest way that the file systems offer."""
        with _named("copy to", target):
            with open(source, "rb", buffering=0) as reader, open(target, "xb", buffering=0) as writer:
                _copy_content(reader, writer)
                if sync:
                    _flush(writer.fileno())

    def _fsync(self, path: Path, flags: int) -> None:
        with _named("sync", path):
            fd = os.open(path, flags | os.O_CLOEXEC)
            try:
                _flush(fd)
            finally:
                os.close(fd)


class FencedDisk(Disk):
    """Calls ``fence`` right before each change of names. It raises if another driver owns them."""

    def __init__(self, fence: Callable[[], None]) -> None:
        self._fence = fence

    def makedirs(self, path: Path) -> None:
        self._fence()
        super().makedirs(path)

    def write_new(self, path: Path, data: bytes) -> None:
        self._fence()
        super().write_new(path, data)

    def rename(self, source: Path | str, target: Path | str) -> None:
        self._fence()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._fence()
        super().unlink(path)

    def rmdir(self, path: Path | str) -> bool:
        self._fence()
        return super().rmdir(path)

    def rmtree(self, path: Path) -> None:
        self._fence()
        super().rmtree(path)


def write_atomic(disk: Disk, path: Path, data: bytes) -> None:
    """Give a file new content. Whatever happens, readers find either the whole old or the whole new content."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        disk.write_new(temporary, data)
        disk.rename(temporary, path)
    except (StorageError, OSError):
        with contextlib.suppress(StorageError, OSError):
            disk.unlink(temporary)
        raise
    disk.fsync_dir(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Like ``write_atomic``, for content that may be lost in a power cut."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def is_temporary(name: str) -> bool:
    """Whether a file of this name was left behind by a crash in ``write_atomic``."""
    return _TEMPORARY.fullmatch(name) is not None


def ensure_dir(disk: Disk, path: Path) -> None:
    """Create a directory and its missing parents, and make their names durable."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    if missing:
        disk.makedirs(missing[0])
        for created in reversed(missing):
            disk.fsync_dir(created.parent)


@contextlib.contextmanager
def _named(action: str, path: object) -> Iterator[None]:
    """Turn a bare OSError into one that says what failed, where, and what helps."""
    try:
        yield
    except OSError as error:
        if error.errno in _MEANINGFUL:
            raise
        raise _explained(action, path, error) from error


def _explained(action: str, path: object, error: OSError) -> StorageError:
    if error.errno in _FULL:
        return StorageFullError(
            f"Could not {action} {path}: no space (or quota) is left there. Committed checkpoints are safe. "
            f"Free some space, or keep fewer checkpoints (CheckpointConfig(num_to_keep=...)), and run again."
        )
    return StorageError(
        f"Could not {action} {path}: {error.strerror}. Check that it is writable and its device is healthy."
    )


def _write_all(file: io.FileIO, data: bytes) -> None:
    written = file.write(data) or 0
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _flush(fd: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: its fsync leaves the data in the drive's cache
    if full is not None:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def _copy_content(reader: io.FileIO, writer: io.FileIO) -> None:
    source, target = reader.fileno(), writer.fileno()
    if sys.platform == "linux":
        try:
            fcntl.ioctl(target, _FICLONE, source)
            return
        except OSError:
            pass
        try:
            while os.copy_file_range(source, target, 1 << 30):
                pass
        except OSError as error:
            if error.errno in _FULL or error.errno == errno.EIO:
                raise
    # Copy what the calls above did not copy. They moved both file offsets, so this starts where they stopped.
    while chunk := reader.read(_CHUNK):
        _write_all(writer, chunk)
