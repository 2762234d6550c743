"""The reports of each rank, written beside its staged files before ``report()`` returns. So a report that returned is
on this machine, no matter which process is killed next: the next driver reads from here what the last one did not
receive. Nothing is synced, because only the metrics and the commit must survive a power cut.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import mmap
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import StorageError
from holdfast.platform.processes import boot_id
from holdfast.store import staging, values
from holdfast.store.disk import Disk
from holdfast.store.layout import path_problem
from holdfast.store.metrics import parse_line
from holdfast.store.regular import read_whole
from holdfast.store.sealed import seal, unseal_struct
from holdfast.store.staging import FileEntry

_PRUNED_ABOVE = 4 << 20  # bytes
_RESERVED = 64 << 10  # bytes, or a multiple of it
_RETURNED = seal(b'{"returned":true}')
_LOOK_EVERY_S = 0.005
_MOST = 4 << 30  # bytes


class StagedReport(msgspec.Struct, frozen=True):
    """A report with files."""

    index: int
    files: list[FileEntry]  # with their sizes; digests only for files that the user stored
    name: str | None = None
    validation: Any = None  # the arguments of the requested validation


@dataclass
class RankReports:
    """The reports of one rank in one attempt that are still in the log. The driver has the older ones."""

    lines: dict[int, bytes] = field(default_factory=dict)  # lines of the metrics file, by report index
    staged: dict[int, StagedReport] = field(default_factory=dict)  # by report index
    returned: bool = False

    @property
    def count(self) -> int:
        return max(self.lines, default=-1) + 1

    def damage(self, index: int, shard: Path) -> str | None:
        """How the files of a report differ from its note; None if they do not."""
        here = [entry for entry in self.staged[index].files if not entry.at]
        return next(filter(None, (staging.difference(shard, entry) for entry in here)), None)


class ReportLog:
    """Written by the rank's own process, through a memory mapping, so that a report costs no system call. Not
    thread-safe."""

    def __init__(self, path: Path, disk: Disk | None = None, continues: bool = False) -> None:
        """``continues``: append to the log of another process, which has exited."""
        self._path = path
        self._continues = continues
        self._disk = disk or Disk()
        self._file: io.FileIO | None = None
        self._mapped: mmap.mmap | None = None
        self._reserved = 0
        self._size = 0
        self._look_at = _PRUNED_ABOVE
        self.durable = -1  # reports up to this one need not be kept

    def append(self, line: bytes, staged: StagedReport | None = None) -> None:
        """``line`` is the report's line of the metrics file. The report counts as made when that line is written."""
        self._write(line if staged is None else _staged_line(staged) + line)
        if self._size > self._look_at:
            self._look_at = 2 * self._size
            with contextlib.suppress(StorageError, OSError):  # the report itself is already logged
                self._prune()

    def returned(self) -> None:
        self._write(_RETURNED)

    def close(self) -> None:
        if self._mapped is not None:
            self._mapped.close()
        if self._file is not None:
            self._file.close()
        self._mapped = self._file = None
        self._reserved = 0

    def _write(self, data: bytes) -> None:
        if self._continues:
            self._continues = False
            self._take_up()
        data = data if self._size else _first_line() + data
        end = self._size + len(data)
        if end > self._reserved:
            self._reserve(end)
        if self._mapped is not None:
            self._mapped[self._size : end] = data
        else:
            assert self._file is not None
            self._file.seek(self._size)
            self._disk.append(self._file, data)
        self._size = end

    def _reserve(self, size: int) -> None:
        """Map the file with space for so many bytes. All are reserved on disk, because a write into a mapping cannot
        fail with an error."""
        if self._file is None:
            self._open()
        assert self._file is not None
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        self._reserved = 0
        size += -size % _RESERVED
        self._disk.reserve(self._file, size)
        with contextlib.suppress(OSError):  # some file systems, such as shared folders, cannot map: then it is written
            self._mapped = mmap.mmap(self._file.fileno(), size)
        self._reserved = size

    def _take_up(self) -> None:
        """Discard the line that the other process was writing when it was killed."""
        found = read(self._path)
        whole = found.rfind(b"\n") + 1
        if whole:
            self._reserve(len(found))
            self._size = whole
            self._blank(len(found))

    def _blank(self, end: int) -> None:
        nothing = bytes(end - self._size)
        if self._mapped is not None:
            self._mapped[self._size : end] = nothing
        else:
            assert self._file is not None
            self._file.seek(self._size)
            self._disk.append(self._file, nothing)

    def _open(self) -> None:
        run = self._path.parents[2]
        if not run.is_dir():
            raise StorageError(f"The run directory {run} was moved or removed during the run.")
        self._disk.make_private_dir(self._path.parent.parent)
        self._disk.makedirs(self._path.parent)
        self._file = self._disk.open_in_place(self._path)
        # This process holds the lock until it exits, so a reader knows when nothing more will come. Not every
        # file system has locks.
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _prune(self) -> None:
        """Drop the reports that the driver has committed."""
        durable = self.durable
        known = parse(read(self._path))
        if durable < min(known.lines, default=0):
            return
        kept = [known.staged[index] for index in sorted(known.staged) if index > durable]
        data = b"".join([_first_line(), *map(_staged_line, kept)])
        data += b"".join(known.lines[index] for index in sorted(known.lines) if index > durable)
        self.close()
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        self._disk.unlink(temporary)
        with self._disk.open_append(temporary, new=True) as file:
            self._disk.append(file, data)
        self._disk.rename(temporary, self._path)
        self._size, self._look_at = len(data), max(_PRUNED_ABOVE, 2 * len(data))
        self._reserve(self._size)  # the new file must be locked again


def _first_line() -> bytes:
    return seal(values.encode({"boot": boot_id()}))


def _staged_line(staged: StagedReport) -> bytes:
    return seal(values.encode({"staged": msgspec.to_builtins(staged)}))


def read(path: Path, any_boot: bool = False) -> bytes:
    """The content of a log, without the reserved space after it; empty if there is none.

    A log from before the machine's last boot counts as lost: nothing was synced, so files may have their sizes but not
    their content. ``any_boot`` accepts it, for logs of other machines.
    """
    try:
        data = read_whole(path, _MOST).rstrip(b"\0")
    except OSError:
        return b""
    first = unseal_struct(data.partition(b"\n")[0], _Note)
    return data if any_boot or (first is not None and first.boot == boot_id()) else b""


def parse(data: bytes) -> RankReports:
    """The content of a log up to the first torn or damaged line, because that line may name the files of later ones.
    Empty if the log names a file outside the staged directory."""
    found = RankReports()
    for content in data.split(b"\n")[:-1]:
        row = parse_line(content)
        if row is not None and isinstance(row["index"], int):
            found.lines[row["index"]] = content + b"\n"
            continue
        note = unseal_struct(content, _Note)
        if note is None:
            break
        found.returned = found.returned or note.returned
        if note.staged is not None:
            if any(path_problem(entry.path) for entry in note.staged.files):
                return RankReports()
            found.staged[note.staged.index] = note.staged
    found.staged = {index: staged for index, staged in found.staged.items() if index in found.lines}
    return found


class _Note(msgspec.Struct):
    boot: str | None = None
    staged: StagedReport | None = None
    returned: bool = False


def await_writers(paths: Iterable[Path], timeout_s: float) -> None:
    """Wait until the processes that write these logs have exited, for at most that time."""
    deadline = time.monotonic() + timeout_s
    waiting = [path for path in paths if _is_written(path)]
    while waiting and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
        waiting = [path for path in waiting if _is_written(path)]


def _is_written(path: Path) -> bool:
    """Whether the log's writer still lives."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # this file system has no locks
    finally:
        os.close(fd)
    return False


def remove_before(staging_dir: Path, attempt_number: int) -> None:
    """Remove the logs of earlier attempts, whose reports the driver has."""
    for path in staging_dir.glob("attempt-*"):
        number = path.name.removeprefix("attempt-")
        if number.isdigit() and int(number) < attempt_number:
            shutil.rmtree(path, ignore_errors=True)
