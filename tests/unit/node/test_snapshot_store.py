"""Copies of snapshots between two nodes: which of them stay, and that a damaged one is not used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.node.snapshot_store import CopyRequest, PeerCalls, SnapshotStore, digest_of
from holdfast.wire.messages import PeerStore
from holdfast.worker.snapshot_buffers import DATA_AT, MappedSnapshot, PieceBuffers, SnapshotHeader

Held = dict[Path, tuple[str, bytes, SnapshotHeader]]


class Pair:
    """A node that sends its snapshots, and a peer that keeps copies of them."""

    def __init__(self, root: Path) -> None:
        self.root, self.held, self.lines = root, Held(), PeerCalls()
        self.store = SnapshotStore(root / "peer", "127.0.0.1", self._find, self._keep)
        self.peer = PeerStore("peer", "127.0.0.1", self.store.port, self.store.token)
        self.own = PieceBuffers(root / "own", "rank-0")

    def _keep(self, piece: str, path: Path, digest: bytes, header: SnapshotHeader) -> None:
        self.held[path] = (piece, digest, header)

    def _find(self, piece: str, attempt_number: int, step: int) -> tuple[Path, bytes] | None:
        for path, (name, digest, header) in self.held.items():
            if (name, header.attempt_number, header.step) == (piece, attempt_number, step):
                return path, digest
        return None

    def bring(self, step: int, keep: tuple[int, int] | None = None) -> bool:
        file = self.own.next(keep)
        content = file.begin(8, 1)
        content[DATA_AT : DATA_AT + 8] = step.to_bytes(8, "little")
        file.commit(1, step, 8, b"m")
        with MappedSnapshot(file.path) as mapped:
            return self.lines.bring(self.peer, "own", "rank-0", mapped, digest_of(content, mapped.header), keep)

    def fetch(self, step: int) -> bytes | None:
        """What a third node gets from the peer."""
        into = PieceBuffers(self.root / "third", "rank-0")
        found: list[Path] = []
        wanted = CopyRequest("third", "rank-0", 1, step)
        is_here = self.lines.fetch(self.peer, wanted, into, lambda _piece, path, *_: found.append(path))
        into.close()
        if not is_here:
            return None
        with MappedSnapshot(found[0]) as mapped:
            return bytes(mapped.content[DATA_AT : DATA_AT + 8])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.lines.close()
    pair.store.close()
    for buffers in (pair.own, *pair.store._buffers.values()):
        buffers.close()


def test_of_two_copies_the_older_one_is_overwritten(pair: Pair) -> None:
    assert [pair.bring(step) for step in (4, 5, 6)] == [True] * 3
    assert [pair.fetch(step) for step in (4, 5, 6)] == [None, *(step.to_bytes(8, "little") for step in (5, 6))]


def test_a_copy_that_must_stay_is_not_overwritten(pair: Pair) -> None:
    """Step 4 was complete on all ranks, and 5 was given up. If the sender is lost while it brings 6, nothing else is
    left."""
    assert [pair.bring(4), pair.bring(5), pair.bring(6, keep=(1, 4))] == [True] * 3
    assert [pair.fetch(step) for step in (4, 5, 6)] == [
        (4).to_bytes(8, "little"),
        None,
        (6).to_bytes(8, "little"),
    ]


def test_a_copy_with_a_flipped_bit_is_not_used(pair: Pair) -> None:
    assert pair.bring(4)
    (path,) = pair.held
    with path.open("r+b") as file:
        file.seek(DATA_AT + 3)
        file.write(b"\x01")
    assert pair.fetch(4) is None
