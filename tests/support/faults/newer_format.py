"""Files as a newer version of Holdfast might write them, for the tests that see them refused."""

from __future__ import annotations

from pathlib import Path

from holdfast.store import values
from holdfast.store.sealed import seal, unseal

VERSION = "7.8.9"


def newer(line: bytes) -> bytes:
    fields = values.decode(unseal(line.rstrip(b"\n")) or b"{}")
    return seal(values.encode({**fields, "format": 2, "version": VERSION}))


def make_newer(path: Path) -> None:
    path.write_bytes(newer(path.read_bytes()))
