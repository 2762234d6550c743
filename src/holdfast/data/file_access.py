"""Files of datasets, on disks and in object stores. They are listed, opened and written with the means of ``store/``.
Every path is resolved to plain files, in the order of their names, when the dataset is created.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.data.data_context import DataContext
from holdfast.data.object_reader import ObjectReader, changed
from holdfast.platform import processes
from holdfast.store.location import Location
from holdfast.store.objects.base import ObjectStore

_TICK_NS = 1_000_000_000  # more than any file system's clock needs from one time to the next
_ANONYMOUS = re.compile(r"^([A-Za-z0-9+.\-]+://)anonymous@(.+)$")


@dataclass(frozen=True)
class DataFile:
    """``version`` changes with the content: where and when a file on a disk was written, or what an object store calls
    a version (ETag). It is empty if it is not known."""

    location: Location
    size: int
    version: str = ""

    @property
    def shown(self) -> str:
        return str(self.location)

    @property
    def is_here(self) -> bool:
        """Whether it is on a disk, where small reads are cheap."""
        return self.location.path is not None

    def open(self, context: DataContext, is_buffered: bool = False) -> Any:
        """For reading at any place; ``is_buffered``: from the beginning on, in small pieces. A file that is not the one
        of which the dataset was made is an error."""
        return self.opened(context, is_buffered)[0]

    def opened(self, context: DataContext, is_buffered: bool = False) -> tuple[Any, Callable[[], str]]:
        """The open file, and a function that returns its version after something was read."""
        path = self.location.path
        if path is not None:
            source = pa.memory_map(str(path)) if self.size else pa.BufferReader(b"")
            try:
                version = self._checked(path)  # afterwards: what is mapped is not newer than what was checked
            except BaseException:
                source.close()
                raise
            return source, lambda: version
        store = _store(self.location.parent, context.storage_patience_s)
        reader = ObjectReader(store, self.location.name, self.size, self.version, self.shown, is_buffered)
        return pa.PythonFile(reader, mode="r"), lambda: reader.version

    @property
    def is_fresh(self) -> bool:
        """Whether it is on a disk and was written a moment ago: if it is written again within a tick of the clock, its
        version is the same."""
        path = self.location.path
        return path is not None and abs(time.time_ns() - path.stat().st_mtime_ns) < _TICK_NS

    def _checked(self, path: Path) -> str:
        """The version on this machine. A copy on another machine has another version and the same size."""
        now = _at(path)
        if now.size != self.size:
            raise changed(self.shown, f"its size changed from {self.size} to {now.size} bytes")
        machine = _machine()
        if now.version != self.version and machine and self.version.startswith(f"{machine} "):
            raise changed(self.shown)
        return now.version

    def read(self, context: DataContext) -> bytes:
        path = self.location.path
        if path is not None:
            return path.read_bytes()
        return _store(self.location.parent, context.storage_patience_s).get(self.location.name)


@lru_cache(maxsize=1)
def _machine() -> str:
    """Identifies who sees the same files under the same names: a machine or a container. Empty if unknown."""
    boot, files = processes.boot_id(), processes.namespace("mnt")
    return f"{boot}/{files}" if boot and files else ""


_stores: dict[tuple[int, str], ObjectStore] = {}


def _store(location: Location, patience_s: float | None = None) -> ObjectStore:
    """One store per place and process: stores are safe for threads, but not for forks."""
    patience = DataContext.get_current().storage_patience_s if patience_s is None else patience_s
    key = os.getpid(), f"{location.identity} {location.options} {patience}"
    if key not in _stores:
        _stores[key] = location.open(patience)
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
        location = Location.parse(f"{caller}(paths", _public(path), filesystem)
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


def _public(path: Any) -> Any:
    """``s3://anonymous@bucket/...``, as Ray's guides write it, with the option that says the same."""
    found = _ANONYMOUS.match(path) if isinstance(path, str) else None
    return f"{found[1]}{found[2]}{'&' if '?' in path else '?'}anonymous=true" if found else path


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
    found = [file for each in sorted(glob.glob(str(path), recursive=True)) for file in _local(Path(each))]
    return list(dict.fromkeys(found))  # a pattern with ** has directories, and what is in them again


def _at(path: Path) -> DataFile:
    found = path.stat()
    version = f"{_machine()} {found.st_dev}:{found.st_ino}:{found.st_mtime_ns}"
    return DataFile(Location("", str(path)), found.st_size, version)


def _remote(location: Location) -> list[DataFile]:
    if "*" in location.key:
        return _matching(location)
    files = [DataFile(location / item.key, item.size) for item in _store(location).list("") if item.key]
    if files:
        return files
    single = [item for item in _store(location.parent).level("").objects if item.key == location.name]
    return [DataFile(location, item.size) for item in single]


def _matching(location: Location) -> list[DataFile]:
    """As on a disk: ``*`` is within a name, ``**`` is any directories, and a directory that matches is read whole."""
    parts = location.key.split("/")
    first = next(number for number, part in enumerate(parts) if "*" in part)
    base, pattern = location, parts[first:]
    for _ in pattern:
        base = base.parent
    listed = [each for each in _store(base).list("") if each.key]
    return [DataFile(base / each.key, each.size) for each in listed if _matches(each.key.split("/"), pattern)]


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the pattern is that of the file, or of a directory that it is in."""
    if not pattern:
        return True
    if pattern[0] == "**" and _matches(names, pattern[1:]):
        return True
    if not names or (names[0].startswith(".") and not pattern[0].startswith(".")):  # as the shell hides them
        return False
    if pattern[0] == "**":
        return _matches(names[1:], pattern)
    return fnmatch.fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


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
