"""Who uses what is stored does not ask where that is: only ``store/`` tells disk and object stores apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent
KINDS = {
    *("DiskStorage", "RemoteStorage", "DiskRun", "ObjectRun", "CheckpointStore", "RemoteCheckpoints"),
    *("JournalFile", "RemoteJournal", "Lease", "RemoteLease"),
}
CHOOSES = {
    "driver/storage_place.py",  # which of the driver's two storages goes with a location
    "data/file_access.py",  # the user's own files: those of a disk are mapped, and listed by pattern
}
MODULES = sorted(path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] != "store")


def told_apart(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what asks which storage something is."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                if KINDS & {name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)}:
                    yield node.lineno, ast.unparse(node)
            case ast.Compare(left=ast.Attribute(value=place, attr="path"), comparators=[ast.Constant(value=None)]):
                if "location" in ast.unparse(place) or "storage" in ast.unparse(place):
                    yield node.lineno, ast.unparse(node)


def test_only_the_store_tells_disk_and_object_stores_apart() -> None:
    found = {path.relative_to(SRC).as_posix(): list(told_apart(path.read_text())) for path in MODULES}
    assert {name: lines for name, lines in found.items() if lines and name not in CHOOSES} == {}


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(self._storage, DiskStorage)",
        "isinstance(x, (A, RemoteLease))",
        "if self.location.path is None: pass",
    ],
)
def test_what_tells_them_apart_is_found(source: str) -> None:
    assert list(told_apart(source))
