"""The run's history: append-only segments, one for each driver epoch, with one sealed record per line.

A driver writes only into the segment that it created. Reading never fails because of the content: it returns every
intact record, wherever it is, and reports the rest as damage.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import RunInUseError
from holdfast.store import values
from holdfast.store.disk import Disk, ensure_dir
from holdfast.store.interfaces import Entries, JournalWriter
from holdfast.store.layout import RunLayout
from holdfast.store.regular import read_lines
from holdfast.store.sealed import Damage as Damage
from holdfast.store.sealed import seal, unseal_struct

_START = re.compile(rb'\{"seq":')
_END = re.compile(rb',"sum":"[0-9a-f]{16}"\}')
_ENDS_TRIED = 8  # the content of a record may contain the same bytes


class Record(msgspec.Struct, frozen=True):
    seq: int
    time: float
    kind: str
    body: dict[str, Any]


values.prepare(Record)


class JournalFile(JournalWriter):
    """The segment of one driver epoch, open for appending."""

    def __init__(self, file: io.FileIO, disk: Disk, next_seq: int) -> None:
        self._file = file
        self._disk = disk
        self._next_seq = next_seq
        self._good_size = 0
        self._torn = False

    @classmethod
    def open(
        cls, layout: RunLayout, epoch: int, disk: Disk | None = None
    ) -> tuple[JournalFile, list[Record], list[Damage]]:
        """Read the history and begin this epoch's segment."""
        disk = disk or Disk()
        ensure_dir(disk, layout.journal_dir)
        records, damage = read(layout)
        path = layout.segment_file(epoch)
        try:
            file = disk.open_append(path, new=True)
        except FileExistsError:
            raise RunInUseError(
                f"{path} exists already: another driver of this run has begun epoch {epoch}. "
                "Wait for it to end, or stop it, and run again."
            ) from None
        try:
            disk.fsync_dir(layout.journal_dir)
        except BaseException:
            file.close()
            raise
        next_seq = max((record.seq for record in records), default=0) + 1
        return cls(file, disk, next_seq), records, damage

    def append(self, entries: Entries, time: float, sync: bool = True) -> None:
        """Make all entries durable with one write and one sync. After an error none of them counts as written.

        Without the sync they survive this process, but not a power cut before the next sync.
        """
        data = b"".join(line(seq, time, kind, body) for seq, (kind, body) in enumerate(entries, start=self._next_seq))
        if not data:
            return
        if self._torn:
            self._cut()
        self._torn = True
        self._disk.append(self._file, data)
        if sync:
            self._disk.sync(self._file)
        self._torn = False
        self._good_size += len(data)
        self._next_seq += len(entries)

    def sync(self) -> None:
        self._disk.sync(self._file)

    def close(self) -> None:
        try:
            if self._torn and not self._file.closed:
                self._cut()
        finally:
            self._file.close()

    def _cut(self) -> None:
        """Remove what a failed append left. Its records were refused, and the next record must not be appended to half
        a line."""
        self._disk.truncate(self._file, self._good_size)
        self._torn = False


def read(layout: RunLayout) -> tuple[list[Record], list[Damage]]:
    """Every intact record in order, and the damage of the rest."""
    records: list[Record] = []
    damage: list[Damage] = []
    for _, path in layout.segments():
        for record in _read_segment(path, layout.relative(path), damage):
            expected = records[-1].seq + 1 if records else 1
            if record.seq != expected:
                damage.append(Damage(layout.relative(path), f"record {record.seq}", gap(expected, record.seq)))
            records.append(record)
    return records, damage


def gap(expected: int, found: int) -> str:
    if found < expected:
        return f"it comes after record {expected - 1}"
    last = found - 1
    return f"record {last} before it is missing" if last == expected else f"records {expected} to {last} are missing"


def _read_segment(path: Path, name: str, damage: list[Damage]) -> Iterator[Record]:
    try:
        yield from parse_lines(read_lines(path), name, damage)
    except OSError as error:
        damage.append(Damage(name, "file", f"cannot be read: {error.strerror}"))


def parse_lines(lines: Iterable[bytes], name: str, damage: list[Damage], first: int = 1) -> Iterator[Record]:
    """The intact records in lines, which have their newlines. ``name`` and ``first`` are the file and the number of the
    first line."""
    for number, line in enumerate(lines, start=first):
        content = line.removesuffix(b"\n")
        record = unseal_struct(content, Record)
        if record is not None:
            yield record
            continue
        buried = list(_buried(content))
        what = "the last write was cut short" if not line.endswith(b"\n") else "its checksum does not match its content"
        kept = f"; {len(buried)} intact in it kept" if buried else ""
        damage.append(Damage(name, f"line {number}", what + kept))
        yield from buried


def _buried(line: bytes) -> Iterator[Record]:
    """The intact records in a damaged line. There are some if the newline between two records was damaged."""
    done = 0
    for start in (match.start() for match in _START.finditer(line)):
        if start < done:
            continue
        for end in islice(_END.finditer(line, start), _ENDS_TRIED):
            record = unseal_struct(line[start : end.end()], Record)
            if record is not None:
                yield record
                done = end.end()
                break


def line(seq: int, time: float, kind: str, body: Mapping[str, Any]) -> bytes:
    if not all(isinstance(key, str) for key in body):
        raise TypeError(f"The keys of a {kind} record must be strings, not {list(body)!r}")
    parts = (seq, values.encode(time), values.encode(kind), values.encode(body, kind))
    return seal(b'{"seq":%d,"time":%s,"kind":%s,"body":%s}' % parts)
