"""Checkpoints and runs put into object stores without a driver, for the tests here."""

from __future__ import annotations

import uuid
from pathlib import Path

import xxhash

from holdfast.store import journal
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.manifests import FileEntry, Manifest
from holdfast.store.objects.base import ObjectStore
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.remote.remote_journal import RemoteJournal
from support.repository import GOLDEN_RUN

FILES = {"model.pt": b"weights" * 300, "shards/0.bin": b"0" * 4096, "empty": b""}
LARGE = 20 << 20


def open_at(url: str) -> ObjectStore:
    return Location.parse("url", url).open(10.0)


def put_files(url: str, files: dict[str, bytes] = FILES) -> None:
    objects = open_at(url)
    for path, data in files.items():
        objects.put(path, data)


def commit(
    run: str, id: str, files: dict[str, bytes] = FILES, report: int = 1, epoch: int = 1, elsewhere: str = ""
) -> str:
    """A checkpoint with its manifest, its files where its user has put them in the run; returns its URL."""
    put_files(f"{run}/{elsewhere or f'checkpoints/{id}'}", files)
    entries = [FileEntry(path, len(data), xxhash.xxh3_128_hexdigest(data), elsewhere) for path, data in files.items()]
    manifest = Manifest(0, id, 1, report - 1, report, 1, 1.5, {"loss": 1.0}, entries, epoch=epoch)
    RemoteCheckpoints(open_at(run)).commit(manifest)
    return f"{run}/checkpoints/{id}"


def flip(url: str, key: str, at: int = -3) -> None:
    objects = open_at(url)
    data = bytearray(objects.get(key))
    data[at] ^= 1
    objects.put(key, bytes(data))


def put_golden(url: str) -> None:
    """The run of 0.1 that the compatibility tests keep, as if it had been driven with its storage there."""
    objects = open_at(url)
    for path in sorted(path for path in GOLDEN_RUN.rglob("*") if path.is_file()):
        key = path.relative_to(GOLDEN_RUN).as_posix()
        if not key.startswith(("journal/", "lease.json")):
            objects.put(key, path.read_bytes())
    records, damage = journal.read(RunLayout(GOLDEN_RUN))
    assert damage == []
    written, _, _ = RemoteJournal.open(objects, uuid.uuid4().hex)
    for record in records:
        written.append([(record.kind, record.body)], record.time)


def tree(directory: str | Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in Path(directory).rglob("*") if p.is_file()}
