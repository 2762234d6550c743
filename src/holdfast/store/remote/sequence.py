"""The journal's objects have numbered positions. Each position is taken at most once, and later objects may replace
earlier ones.

An object at position n whose header says ``first`` replaces all positions from ``first`` to n. It repeats those of
their records that count, and the objects at those positions are not read any more. So one rule covers a plain append
(``first`` is n itself), a merge, and an append that follows one with an unknown result.
"""

from __future__ import annotations

import io
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from holdfast.errors import StorageUnavailableError
from holdfast.store import journal, values
from holdfast.store.journal import Record
from holdfast.store.objects.base import ObjectInfo, ObjectStore
from holdfast.store.remote.fetch import get_all
from holdfast.store.sealed import Damage, seal, unseal_struct

DIRECTORY = "journal/"
EPOCH_BEGAN = "EpochBegan"
_AT_ONCE = 24  # objects per round of requests: about as many as count in a typical journal
_TRIES = 50
_KEY = re.compile(r"journal/(\d{8,})(?:\.(\d{6,})\.([^./]+))?\.jsonl")


class Header(msgspec.Struct, frozen=True):
    """The first line of each object: its writer, and the positions that it replaces."""

    position: int
    first: int
    epoch: int
    token: str
    host: str
    pid: int
    claim: bool = False

    @classmethod
    def of_this_process(cls, *, position: int, epoch: int, token: str, claim: bool = False) -> Header:
        return cls(position, position, epoch, token, socket.gethostname(), os.getpid(), claim)

    def line(self) -> bytes:
        return seal(values.encode(msgspec.structs.asdict(self)))

    @property
    def who(self) -> str:
        return f"process {self.pid} on {self.host} (epoch {self.epoch})"


values.prepare(Header)


@dataclass
class Entry:
    """An object that counts."""

    key: str
    position: int
    first: int
    lines: bytes  # the intact ones


@dataclass
class StoredPast:
    """Everything that an object store holds of a run's history."""

    entries: list[Entry] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    claims: set[int] = field(default_factory=set)  # positions at which an epoch began
    last: int = 0  # the highest position that is taken
    epoch: int = 0  # the newest epoch that has begun, or may have


def key_of(position: int, owner: tuple[int, str] | None = None) -> str:
    """``owner``: epoch and token. Needed where the store cannot ensure that a key is written only once."""
    suffix = f".{owner[0]:06d}.{owner[1]}" if owner else ""
    return f"{DIRECTORY}{position:08d}{suffix}.jsonl"


def parse_header(data: bytes, position: int) -> Header | None:
    line, newline, _ = data.partition(b"\n")
    header = unseal_struct(line, Header) if newline else None
    return header if header is not None and header.first <= header.position == position else None


def read(objects: ObjectStore) -> StoredPast:
    for _ in range(_TRIES):
        past = _read_once(objects, _places(objects.list(DIRECTORY)))
        if past is not None:
            return past
    raise StorageUnavailableError(f"The journal in {objects.url} changes faster than it can be read. Try again.")


def _places(infos: Iterable[ObjectInfo]) -> dict[int, str]:
    """The key that counts at each position.

    Where keys have owners, an epoch's objects count up to the position where the next epoch begins. If two drivers
    began the same epoch, it belongs to the one with the lower token.
    """
    plain: dict[int, str] = {}
    owned: dict[int, dict[str, dict[int, str]]] = {}
    for info in infos:
        match = _KEY.fullmatch(info.key)
        if match is None:
            continue
        position = int(match[1])
        if match[2] is None:
            plain[position] = info.key
        else:
            owned.setdefault(int(match[2]), {}).setdefault(match[3], {})[position] = info.key
    places: dict[int, str] = {}
    end: int | None = None
    for epoch in sorted(owned, reverse=True):
        chain = owned[epoch][min(owned[epoch])]
        places |= {position: key for position, key in chain.items() if end is None or position < end}
        end = min(chain) if end is None else min(end, *chain)
    return places | plain


def _read_once(objects: ObjectStore, places: dict[int, str]) -> StoredPast | None:
    """None if an object that counts is missing, because it was merged into another one after the listing."""
    past = StoredPast(last=max(places, default=0))
    found: list[tuple[Entry, bytes, Header | None]] = []
    ahead = sorted(places, reverse=True)
    limit = past.last + 1
    while ahead:
        batch, ahead = ahead[:_AT_ONCE], ahead[_AT_ONCE:]
        for position, data in zip(batch, get_all(objects, [places[p] for p in batch]), strict=True):
            if position >= limit:
                continue
            if data is None:
                return None
            header = parse_header(data, position)
            limit = header.first if header else position
            found.append((Entry(places[position], position, limit, b""), data, header))
        ahead = [position for position in ahead if position < limit]
    for entry, data, header in reversed(found):
        _take_in(past, entry, data, header)
    _check_order(past)
    return past


def _take_in(past: StoredPast, entry: Entry, data: bytes, header: Header | None) -> None:
    head, _, lines = data.partition(b"\n")
    first_line = 2
    if header is None:
        past.damage.append(Damage(entry.key, "line 1", "it does not say what this object is"))
        past.epoch += 1  # this may be the claim of an epoch
        if b'{"seq":' in head:  # the newline after the header is damaged
            lines, first_line = data, 1
    else:
        past.epoch = max(past.epoch, header.epoch)
        if header.claim:
            past.claims.add(entry.position)
    before = len(past.damage)
    records = list(journal.parse_lines(io.BytesIO(lines), entry.key, past.damage, first_line))
    for record in records:
        _note_epoch(past, record)
    past.records += records
    intact = len(past.damage) == before
    entry.lines = lines if intact else b"".join(journal.line(r.seq, r.time, r.kind, r.body) for r in records)
    past.entries.append(entry)


def _note_epoch(past: StoredPast, record: Record) -> None:
    if record.kind != EPOCH_BEGAN:
        return
    epoch, position = record.body.get("epoch"), record.body.get("position")
    if isinstance(epoch, int) and isinstance(position, int):
        past.epoch = max(past.epoch, epoch)
        past.claims.add(position)


def _check_order(past: StoredPast) -> None:
    """Sort the records, drop duplicates (the later object wins), and report missing ones."""
    by_seq = {record.seq: record for record in past.records}
    past.records = [by_seq[seq] for seq in sorted(by_seq)]
    expected = 1
    for record in past.records:
        if record.seq != expected:
            past.damage.append(Damage(DIRECTORY, f"record {record.seq}", journal.gap(expected, record.seq)))
        expected = record.seq + 1
