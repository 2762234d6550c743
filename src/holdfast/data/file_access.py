"""Files of datasets, on disks and in object stores: listed, opened and written by what ``store/`` has.

Every path is resolved when the dataset is made: to plain files, in the order of their names.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.data.data_context import DataContext
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore


@dataclass(frozen=True)
class DataFile:
    location: Location
    size: int

    @property
    def shown(self) -> str:
        return str(self.location)

    @property
    def is_here(self) -> bool:
        """Whether it is on a disk, where small reads are cheap."""
        return self.location.path is not None

    def open(self) -> Any:
        """For reading at any place."""
        path = self.location.path
        if path is not None:
            return pa.memory_map(str(path)) if self.size else pa.BufferReader(b"")
        return pa.PythonFile(_RemoteFile(_store(self.location.parent), self.location.name, self.size), mode="r")

    def read(self) -> bytes:
        path = self.location.path
        return path.read_bytes() if path is not None else _store(self.location.parent).get(self.location.name)


class _RemoteFile:
    """What pyarrow needs of an open file; every read is a request for a range."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._at, self.closed = 0, False

    def read(self, length: int | None = -1) -> bytes:
        wanted = self._size - self._at if length is None or length < 0 else min(length, self._size - self._at)
        data = self._store.get_range(self._key, self._at, wanted) if wanted > 0 else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


_stores: dict[tuple[int, str], ObjectStore] = {}


def _store(location: Location) -> ObjectStore:
    """One for each place and process: a store is safe for threads, and not for forks."""
    key = os.getpid(), f"{location.identity} {location.options}"
    if key not in _stores:
        _stores[key] = location.open(DataContext.get_current().storage_patience_s)
    return _stores[key]


def listed(
    caller: str, paths: Any, filesystem: Any, extensions: Sequence[str] | None, missing_ok: bool
) -> list[DataFile]:
    """The files of paths: each a file, a directory, a pattern with ``*``, or the same in an object store."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ValueError(f"{caller}(paths={paths!r}): name at least one file or directory")
    found: list[DataFile] = []
    for path in given:
        location = Location.parse(f"{caller}(paths", path, filesystem)
        files = _local(location.path) if location.path is not None else _remote(location)
        if not files and not missing_ok:
            raise FileNotFoundError(f"{caller}({str(location)!r}): there is no such file or directory")
        chosen = [file for file in files if len(files) == 1 or _fits(file, extensions)]
        if files and not chosen:
            raise FileNotFoundError(
                f"{caller}({str(location)!r}): none of its {len(files)} files ends with {', '.join(extensions or ())}; "
                "pass file_extensions=None to read all of them"
            )
        found += chosen
    if not found:
        raise FileNotFoundError(f"{caller}(paths={paths!r}): none of them exists")
    return found


def _fits(file: DataFile, extensions: Sequence[str] | None) -> bool:
    name = file.location.name
    return not name.startswith(("_", ".")) and (
        extensions is None or any(name.lower().endswith(f".{extension.lower()}") for extension in extensions)
    )


def _local(path: Path) -> list[DataFile]:
    if path.is_file():
        return [_at(path)]
    if path.is_dir():
        return [_at(each) for each in sorted(path.rglob("*")) if each.is_file()]
    return [file for each in sorted(glob.glob(str(path), recursive=True)) for file in _local(Path(each))]


def _at(path: Path) -> DataFile:
    return DataFile(Location("", str(path)), path.stat().st_size)


def _remote(location: Location) -> list[DataFile]:
    if "*" in location.name:
        import fnmatch

        found = _store(location.parent).list("")
        return [
            DataFile(location.parent / item.key, item.size)
            for item in found
            if fnmatch.fnmatchcase(item.key, location.name)
        ]
    files = [DataFile(location / item.key, item.size) for item in _store(location).list("") if item.key]
    if files:
        return files
    single = [item for item in _store(location.parent).level("").objects if item.key == location.name]
    return [DataFile(location, item.size) for item in single]


@lru_cache(maxsize=1)
def _written_by() -> str:
    return os.urandom(4).hex()


def write(location: Location, name: str, data: bytes | memoryview) -> None:
    path = location.path
    if path is None:
        _store(location).put(name, bytes(data))
        return
    path.mkdir(parents=True, exist_ok=True)
    temporary = path / f".{name}.{_written_by()}.tmp"
    temporary.write_bytes(data)
    temporary.replace(path / name)
