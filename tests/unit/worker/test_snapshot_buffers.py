"""The memory of snapshots: two files in turn, of which the one with a complete snapshot stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.worker.snapshot_buffers import PieceBuffers


def held(buffers: PieceBuffers) -> set[tuple[int, ...]]:
    return {tuple(file.held[:2]) for file in buffers._files if file.held.step >= 0}


def write(buffers: PieceBuffers, step: int, keep: tuple[int, int] | None = None) -> None:
    file = buffers.next(keep)
    file.begin(8, 2)
    file.commit(1, step, 8, b"{}")


@pytest.fixture
def buffers(tmp_path: Path) -> Iterator[PieceBuffers]:
    found = PieceBuffers(tmp_path, "shared")
    for step in (4, 5):
        write(found, step)
    yield found
    found.close()


def test_the_newer_one_stays(buffers: PieceBuffers) -> None:
    write(buffers, 6)
    assert held(buffers) == {(1, 5), (1, 6)}


def test_the_one_that_is_complete_stays_if_the_newer_one_is_not(buffers: PieceBuffers) -> None:
    write(buffers, 6, keep=(1, 4))
    assert held(buffers) == {(1, 4), (1, 6)}


def test_a_complete_one_that_is_newer_stays_too(buffers: PieceBuffers) -> None:
    write(buffers, 6, keep=(1, 5))
    assert held(buffers) == {(1, 5), (1, 6)}
