"""Memory for snapshots that outlives its worker: plain files on a memory file system, in a directory of the agent.

Each piece of a state has two files, which are written in turn. They are allocated and touched once, and the worker of
the next attempt uses them again. The header names the step that a file holds. While the file is being written, the
header names no step, so an interrupted snapshot is never used. Layout: a header, the data at ``DATA_AT``, then the
description.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

DATA_AT = 4096
NO_STEP = -1
_HEADER = struct.Struct("<8sqqqq")
_MAGIC = b"hfsnap01"


class SnapshotHeader(NamedTuple):
    attempt_number: int
    step: int
    data_size: int
    meta_size: int

    @property
    def size(self) -> int:
        """How many bytes of the file are in use."""
        return DATA_AT + self.data_size + self.meta_size


_EMPTY = SnapshotHeader(-1, NO_STEP, 0, 0)


def header_of(content: mmap.mmap | bytes) -> SnapshotHeader:
    """The header of the file. It names no step if the file is incomplete."""
    if len(content) < DATA_AT:
        return _EMPTY
    magic, *fields = _HEADER.unpack_from(content, 0)
    header = SnapshotHeader(*fields)
    is_whole = magic == _MAGIC and header.step >= 0 and min(header.data_size, header.meta_size) >= 0
    return header if is_whole and header.size <= len(content) else _EMPTY


def header_in(path: Path) -> SnapshotHeader:
    with contextlib.suppress(OSError, ValueError), MappedSnapshot(path) as mapped:
        return mapped.header
    return _EMPTY


class MappedSnapshot:
    """A file to read from. ``OSError`` if it does not exist."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if os.fstat(file.fileno()).st_size else b""

    @property
    def header(self) -> SnapshotHeader:
        return header_of(self.content)

    def __enter__(self) -> MappedSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self.content, mmap.mmap):
            with contextlib.suppress(BufferError):  # a view of it is still in use; it is freed with the last view
                self.content.close()


class SnapshotFile:
    """A file to write: call ``begin``, fill ``data``, then call ``commit``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map: mmap.mmap | None = None

    @property
    def held(self) -> SnapshotHeader:
        return header_in(self.path) if self._map is None else header_of(self._map)

    def begin(self, data_size: int, meta_size: int) -> mmap.mmap:
        """Give the file this size and drop its content. ``OSError`` if there is not enough memory."""
        size = DATA_AT + data_size + meta_size
        if self._map is None or len(self._map) < size:
            self._open(size + size // 64)  # a description may grow a little
        assert self._map is not None
        _HEADER.pack_into(self._map, 0, _MAGIC, *_EMPTY)
        return self._map

    def commit(self, attempt_number: int, step: int, data_size: int, meta: bytes) -> None:
        """Mark the file as complete: all data is written."""
        assert self._map is not None
        at = DATA_AT + data_size
        self._map[at : at + len(meta)] = meta
        _HEADER.pack_into(self._map, 0, _MAGIC, attempt_number, step, data_size, len(meta))

    def _open(self, size: int) -> None:
        self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = max(size, os.fstat(fd).st_size)
            os.posix_fallocate(fd, 0, size)  # so that missing memory is an error now and not a SIGBUS later
            self._map = mmap.mmap(fd, size, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        finally:
            os.close(fd)

    def close(self) -> None:
        if self._map is not None:
            with contextlib.suppress(BufferError):
                self._map.close()
            self._map = None


class PieceBuffers:
    """The two files of a piece."""

    def __init__(self, directory: Path, piece: str, keep: str = "") -> None:
        """``keep``: the file that the worker resumed from. It stays until something newer is complete."""
        self._files = [SnapshotFile(directory / f"{piece}-{slot}") for slot in (0, 1)]
        self._keep = keep

    def next(self, keep: tuple[int, int] | None = None) -> SnapshotFile:
        """The file to write next: not the one that holds the snapshot ``keep`` (attempt, step), else the older one."""
        if self._keep:
            kept, self._keep = self._keep, ""
            for file, other in (self._files, self._files[::-1]):
                if str(file.path) == kept:
                    return other
        first, last = sorted(self._files, key=lambda file: file.held[:2])
        return last if first.held[:2] == keep else first

    def close(self) -> None:
        for file in self._files:
            file.close()
