"""A local directory as an object store, through ``Disk``: writes are durable and complete.

Nothing is retried: errors of a local disk are raised immediately.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.errors import ObjectExistsError, ObjectMissingError, StorageError
from holdfast.store.disk import Disk, ensure_dir, is_temporary, write_atomic
from holdfast.store.objects import transfer
from holdfast.store.objects.base import Level, ObjectInfo
from holdfast.store.regular import open_regular

_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class FileObjects:
    """An ``ObjectStore`` whose keys are the relative paths of a directory's files."""

    creates_safely = True

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._root = root
        self._disk = disk or Disk()

    @property
    def url(self) -> str:
        return str(self._root)

    def get(self, key: str) -> bytes:
        with self._reading(key):
            with open_regular(self._path(key)) as file:
                return file.readall() or b""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._reading(key), open_regular(self._path(key)) as file:
            file.seek(start)
            return transfer.exactly(file.read(length) or b"", length, str(self._path(key)))

    def put(self, key: str, data: bytes) -> None:
        self._place(key, lambda path: write_atomic(self._disk, path, data))

    def create(self, key: str, data: bytes) -> None:
        try:
            self._place(key, lambda path: self._create(path, data))
        except FileExistsError:
            if self.get(key) != data:
                raise ObjectExistsError(f"{self._path(key)} already exists.") from None

    def list(self, prefix: str = "") -> builtins.list[ObjectInfo]:
        found: builtins.list[ObjectInfo] = []
        for directory, _, names in os.walk(self._root / prefix):
            for name in names:
                self._add(found, Path(directory, name))
        return sorted(found)

    def level(self, prefix: str = "") -> Level:
        objects: builtins.list[ObjectInfo] = []
        directories: builtins.list[str] = []
        with contextlib.suppress(*_NOT_THERE), os.scandir(self._root / prefix) as entries:
            for entry in entries:
                if entry.is_dir():
                    directories.append(self._key(Path(entry.path)))
                else:
                    self._add(objects, Path(entry.path))
        return Level(sorted(objects), sorted(directories))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._path(key)
            with contextlib.suppress(NotADirectoryError):
                self._disk.unlink(path)
            while (path := path.parent) != self._root and self._root in path.parents:
                self._disk.rmdir(path)  # removed only if empty: an object store has no empty directories

    def upload(self, path: Path, key: str) -> None:
        self._place(key, lambda target: self._copy(path, target))

    def download(self, key: str, path: Path, size: int) -> None:
        with self._reading(key):
            found = self._path(key).stat().st_size
            if found != size:
                raise transfer.damaged(str(self._path(key)), size, found)
            temporary = _temporary(path)
            try:
                self._disk.copy_file(self._path(key), temporary, sync=False)
                self._disk.rename(temporary, path)
            finally:
                self._disk.unlink(temporary)

    def with_patience(self, seconds: float) -> FileObjects:
        return self

    def close(self) -> None:
        pass

    def _place(self, key: str, write: Callable[[Path], None]) -> None:
        """Write below a directory that another ``delete`` may remove while it is still empty."""
        path = self._path(key)
        while True:
            ensure_dir(self._disk, path.parent)
            try:
                write(path)
                return
            except FileNotFoundError:
                if path.parent.is_dir():
                    raise

    def _create(self, path: Path, data: bytes) -> None:
        temporary = _temporary(path)
        try:
            self._disk.write_new(temporary, data)
            try:
                os.link(temporary, path)  # the file appears as a whole, and only if the name is free
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._disk.write_new(path, data)
        finally:
            self._disk.unlink(temporary)
        self._disk.fsync_dir(path.parent)

    def _copy(self, source: Path, target: Path) -> None:
        if not source.is_file():
            raise StorageError(f"Could not upload {source}: the file does not exist.")
        temporary = _temporary(target)
        try:
            self._disk.copy_file(source, temporary)
            self._disk.rename(temporary, target)
        finally:
            self._disk.unlink(temporary)
        self._disk.fsync_dir(target.parent)

    def _add(self, found: builtins.list[ObjectInfo], path: Path) -> None:
        if not is_temporary(path.name):
            with contextlib.suppress(FileNotFoundError):
                found.append(ObjectInfo(self._key(path), path.stat().st_size))

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        path = self._path(key)
        try:
            yield
        except _NOT_THERE:
            if path.is_file():
                raise
            raise ObjectMissingError(f"{path} does not exist.") from None
        except OSError as error:
            raise StorageError(f"Could not read {path}: {error.strerror}. Check its device and permissions.") from error

    def _path(self, key: str) -> Path:
        if not key or {"", ".", ".."} & set(key.split("/")):
            raise ValueError(f"{key!r} is not a key: write a relative path without . and ..")
        return self._root / key

    def _key(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")  # so that ``is_temporary`` recognizes it
