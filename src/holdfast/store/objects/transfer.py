"""Large objects to and from files: parallel parts, bounded memory, and a download that resumes where it stopped.

Beside a download's file are ``<name>.part``, its content so far, and ``<name>.parts``, the list of parts in it. A part
is listed after its bytes were written. Both are trusted only until the machine reboots: the page cache survives a
killed process, but not a power cut. The caller must not run two downloads into one file at the same time.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import CheckpointDamagedError, StorageError, StorageFullError
from holdfast.platform.processes import boot_id

PART_BYTES = 8 << 20
STREAMS = 12
MOST_PARTS = 10_000  # the limit of parts per upload of S3 and Google
_MIB = 1 << 20


class Part(NamedTuple):
    data: Any  # bytes of a buffer
    size: int  # of the whole object
    tag: str | None  # identifies the object's version


class NoRangesError(StorageError):
    """The server does not send parts of an object."""


class Reader(io.FileIO):
    """A file to upload. It cannot be read any more once the store is closed."""

    def __init__(self, path: Path, check_open: Callable[[], None]) -> None:
        super().__init__(path, "rb")
        self._check_open = check_open

    def read(self, size: int | None = -1) -> bytes:
        self._check_open()
        return super().read(-1 if size is None else size) or b""


def part_bytes(size: int) -> int:
    """The smallest whole number of MiB, not below ``PART_BYTES``, that keeps a file within the limit of parts."""
    needed = -(-size // MOST_PARTS)
    return max(PART_BYTES, -(-needed // _MIB) * _MIB)


@contextlib.contextmanager
def local(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the local disk into one that is not mistaken for an error of the store."""
    try:
        yield
    except OSError as error:
        kind = StorageFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
        raise kind(f"Could not {action} {path}: {error.strerror}. Check the local disk and its space.") from error


def download_whole(chunks: Iterable[Any], path: Path, size: int, name: str) -> None:
    """Write one stream to the file. The file gets its name when its size is right."""
    part, notes = _beside(path)
    arrived = 0
    with contextlib.ExitStack() as stack:
        with local("write", part):
            file = stack.enter_context(open(part, "wb", buffering=0, opener=_open_no_link))
        for chunk in chunks:
            arrived += _write_at(file.fileno(), chunk, arrived, part)
    if arrived != size:
        raise damaged(name, size, arrived)
    _finish(part, notes, path)


def download_parts(fetch: Callable[[int, int], Part], path: Path, size: int, name: str) -> None:
    """Fetch the missing parts, several at a time. Parts that arrived before an error are kept for the next call.
    ``fetch`` returns exactly the requested part."""
    while not _Download(fetch, path, size, name).run():
        pass  # the object was replaced: start over


def damaged(name: str, size: int, found: int) -> CheckpointDamagedError:
    return CheckpointDamagedError(f"{name} has {found} bytes instead of {size}.")


def exactly(data: bytes, length: int, name: str) -> bytes:
    if len(data) != length:
        raise CheckpointDamagedError(f"{name} ends before the {length} bytes that were asked for.")
    return data


class _Download:
    def __init__(self, fetch: Callable[[int, int], Part], path: Path, size: int, name: str) -> None:
        self._fetch = fetch
        self._path = path
        self._size = size
        self._name = name
        self._part, self._notes_path = _beside(path)
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._headed = False
        self._tag: str | None = None

    def run(self) -> bool:
        """Whether the file is complete. If not, its parts were removed, and the next run starts over."""
        with contextlib.ExitStack() as stack:
            with local("write", self._part):
                there = self._resume()
                self._target = _open_no_link(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
                stack.callback(os.close, self._target)
                self._notes = stack.enter_context(open(self._notes_path, "ab", buffering=0, opener=_open_no_link))
                if not there:
                    _reserve(self._target, self._size)
            self._fetch_all([start for start in range(0, self._size, PART_BYTES) if start not in there])
        if self._changed.is_set():
            self._forget()
            return False
        _finish(self._part, self._notes_path, self._path)
        return True

    def _fetch_all(self, starts: list[int]) -> None:
        with ThreadPoolExecutor(STREAMS, thread_name_prefix="holdfast-download") as pool:
            futures = [pool.submit(self._fetch_one, start) for start in starts]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                pool.shutdown(cancel_futures=True)
        for future in futures:
            if not future.cancelled():
                future.result()

    def _fetch_one(self, start: int) -> None:
        if self._changed.is_set():
            return
        part = self._fetch(start, min(PART_BYTES, self._size - start))
        if part.size != self._size:
            raise damaged(self._name, self._size, part.size)
        if not self._same_version(part.tag):
            self._changed.set()
            return
        _write_at(self._target, part.data, start, self._part)
        self._note(str(start))

    def _same_version(self, tag: str | None) -> bool:
        with self._lock:
            if not self._headed:
                self._tag, self._headed = tag, True
                self._note(json.dumps({"size": self._size, "part": PART_BYTES, "tag": tag, "boot": boot_id()}))
            return tag == self._tag

    def _note(self, line: str) -> None:
        with local("write", self._notes_path):
            self._notes.write(f"{line}\n".encode())  # one short write: only a crash of the machine can tear it

    def _resume(self) -> set[int]:
        """The starts of the parts that exist. If there are none, removes what an earlier call left."""
        try:
            head, *lines = self._notes_path.read_text(encoding="utf-8").splitlines()
            known = json.loads(head)
            fits = (known["size"], known["part"], known["boot"]) == (self._size, PART_BYTES, boot_id())
            if fits and known["boot"] and lines and self._part.stat().st_size == self._size:
                self._tag, self._headed = known["tag"], True
                return {int(line) for line in lines}
        except (OSError, ValueError, KeyError, TypeError):
            pass
        self._forget()
        return set()

    def _forget(self) -> None:
        self._notes_path.unlink(missing_ok=True)
        self._part.unlink(missing_ok=True)


def _open_no_link(path: str | Path, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _beside(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".part"), path.with_name(path.name + ".parts")


def _finish(part: Path, notes: Path, path: Path) -> None:
    with local("write", path):
        os.rename(part, path)
        notes.unlink(missing_ok=True)


def _reserve(target: int, size: int) -> None:
    """Reserve the space now, so that a full disk is noticed before anything is fetched."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(target, 0, size)
    else:
        os.ftruncate(target, size)


def _write_at(target: int, data: Any, start: int, path: Path) -> int:
    rest, at = memoryview(data), start
    with local("write", path):
        while rest:
            written = os.pwrite(target, rest, at)
            rest, at = rest[written:], at + written
    return at - start
