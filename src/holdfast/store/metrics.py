"""Every report of every rank: one file of sealed JSON lines for each rank of each attempt.

An append costs one system call and is durable after ``sync``. If a line is damaged, only that line is lost.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import StorageError
from holdfast.store import values
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.regular import open_regular, read_lines
from holdfast.store.sealed import Damage, seal, unseal

_TAIL = 1 << 20  # bytes
_MANY = 64  # files; each sync waits for the drive, so for more files one sync of the file system is faster


def line(index: int, time: float, metrics: Any) -> bytes:
    """The line of a rank's report number ``index``. If a metric cannot be stored, a TypeError names it."""
    parts = (index, values.encode(time), values.encode(metrics, "metrics"))
    return seal(b'{"index":%d,"time":%s,"metrics":%s}' % parts)


class MetricsWriter:
    """One thread appends whole lines; another one may ``sync`` meanwhile."""

    def __init__(self, layout: RunLayout, disk: Disk | None = None) -> None:
        self._layout = layout
        self._disk = disk or Disk()
        self._lock = threading.RLock()  # for all fields below
        self._files: dict[tuple[int, int], io.FileIO] = {}
        self._directories: dict[int, bool] = {}  # by attempt: whether this writer created the directory
        self._newest = 0  # attempt
        self._unsynced: set[tuple[int, int]] = set()
        self._torn: set[tuple[int, int]] = set()
        self._new_names: set[Path] = set()

    def append(self, attempt_number: int, rank: int, lines: bytes) -> None:
        key = attempt_number, rank
        with self._lock:
            file = self._files.get(key) or self._open(key)
            if key in self._torn:
                lines = b"\n" + lines  # end a half-written line, so that it does not damage the next one
            self._unsynced.add(key)
            self._torn.add(key)
            self._disk.append(file, lines)
            self._torn.discard(key)

    def sync(self) -> None:
        """Sync the appended lines; close the files of attempts that have ended."""
        with self._lock:
            unsynced, self._unsynced = self._unsynced, set()
            if len(unsynced) < _MANY:
                self._sync_each(unsynced)
                unsynced = set()
        try:
            if unsynced and self._disk.sync_file_system(self._layout.metrics_dir):  # appends need not wait for this
                unsynced = set()
        except StorageError:
            with self._lock:
                self._unsynced |= unsynced
            raise
        with self._lock:
            self._sync_each(unsynced)
            for directory in sorted(self._new_names):
                self._disk.fsync_dir(directory)
            self._new_names.clear()
            for key in [key for key in self._files if key[0] < self._newest]:
                self._files.pop(key).close()

    def _sync_each(self, unsynced: set[tuple[int, int]]) -> None:
        self._unsynced |= unsynced
        for key in unsynced:
            if key in self._files:
                self._disk.sync(self._files[key])
            else:
                self._disk.fsync_file(self._layout.metrics_file(*key))
            self._unsynced.discard(key)

    def close(self, sync: bool = True) -> None:
        try:
            if sync:
                self.sync()
        finally:
            self._close_all()

    def _close_all(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _open(self, key: tuple[int, int]) -> io.FileIO:
        if len(self._files) >= _MANY and key[0] > self._newest:
            self.sync()  # close the files of an ended attempt when the next one begins
            self._close_all()
        self._newest = max(self._newest, key[0])
        path = self._layout.metrics_file(*key)
        if key[0] not in self._directories:
            self._directories[key[0]] = not path.parent.exists()
            self._disk.makedirs(path.parent)
        if not self._directories[key[0]] and _ends_torn(path):
            self._torn.add(key)
        self._files[key] = self._disk.open_append(path, new=False)
        self._new_names |= {path.parent, self._layout.metrics_dir, self._layout.root}
        return self._files[key]


def read_metrics(layout: RunLayout, attempt_number: int, rank: int) -> tuple[list[dict[str, Any]], list[Damage]]:
    """The reports of one rank in one attempt, oldest first, and the lines that could not be read."""
    path = layout.metrics_file(attempt_number, rank)
    return read_reports(path, layout.relative(path))


def read_reports(path: Path, name: str) -> tuple[list[dict[str, Any]], list[Damage]]:
    """The reports in a file, and its damage. ``name`` is the file's name in the damage."""
    rows: list[dict[str, Any]] = []
    damage: list[Damage] = []
    try:
        rows.extend(parse_lines(read_lines(path), name, damage))
    except FileNotFoundError:
        pass
    except OSError as error:
        damage.append(Damage(name, "file", f"cannot be read: {error.strerror}"))
    return rows, damage


def parse_lines(lines: Iterable[bytes], name: str, damage: list[Damage]) -> Iterator[dict[str, Any]]:
    """The reports in lines, with or without newlines. Lines that are not intact are added to the damage."""
    for number, content in enumerate(lines, start=1):
        row = parse_line(content)
        if row is not None:
            yield row
        elif content not in (b"\n", b""):
            damage.append(Damage(name, f"line {number}", "it is not an intact report"))


def read_last_metrics(layout: RunLayout, attempt_number: int, rank: int) -> dict[str, Any] | None:
    """The last intact report near the end of the file, which may be of any size; None if there is none."""
    try:
        with open_regular(layout.metrics_file(attempt_number, rank)) as file:
            file.seek(max(0, file.seek(0, io.SEEK_END) - _TAIL))
            lines = file.read(_TAIL).split(b"\n")
    except OSError:
        return None
    rows = (parse_line(content) for content in reversed(lines) if content)
    return next((row for row in rows if row is not None), None)


def parse_line(content: bytes) -> dict[str, Any] | None:
    """The report that a line holds, with or without its newline; None if the line is not intact."""
    # Early versions wrote lines without a seal. They have exactly the three keys; a damaged sealed line never has.
    try:
        content = content.rstrip(b"\n")
        row = values.decode(unseal(content) or content)
    except ValueError:
        return None
    return row if isinstance(row, dict) and row.keys() == {"index", "time", "metrics"} and _is_report(row) else None


def _is_report(row: dict[str, Any]) -> bool:
    index, time = row["index"], row["time"]
    return type(index) is int and index >= 0 and type(time) in (int, float) and isinstance(row["metrics"], dict)


def _ends_torn(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.seek(0, io.SEEK_END) > 0 and file.seek(-1, io.SEEK_END) >= 0 and file.read(1) != b"\n"
    except FileNotFoundError:
        return False
