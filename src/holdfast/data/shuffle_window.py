"""Pieces whose rows are shuffled together. Of the rows of a window, only those that are wanted are computed and held: a
rank reads the window and computes its share, and a run that resumes computes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.calls import Computation
from holdfast.data.columns import joined
from holdfast.data.permutations import permutation
from holdfast.data.pieces import Chunk, MappedPiece, Piece, SequencePiece, SlicePiece, ranges
from holdfast.errors import DataError


@dataclass(frozen=True)
class WindowPiece:
    """Several pieces, in an order of their rows that ``key`` decides."""

    parts: tuple[Piece, ...]
    key: tuple[int, ...]

    @property
    def rows(self) -> int | None:
        return SequencePiece(self.parts).rows

    @property
    def nbytes(self) -> int:
        return SequencePiece(self.parts).nbytes

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        whole = SequencePiece(self.parts)
        rows = whole.rows
        if rows is None:  # the order is known when all of them are
            chunks = list(whole.stream(run))
            chunks = [chunk for chunk in chunks if chunk.table.num_rows] or chunks  # those without rows have no place
            rows = sum(chunk.table.num_rows for chunk in chunks)
            places = permutation(rows, *self.key)[start:stop]
        else:
            order = permutation(rows, *self.key)[start:stop]
            is_wanted: Any = np.zeros(rows, bool)
            is_wanted[order] = True
            chunks = list(picked(whole, run, np.flatnonzero(is_wanted)))
            places = order if len(order) == rows else (np.cumsum(is_wanted) - 1)[order]
        if chunks:
            yield from _ordered(chunks, places, rows, run)


def _ordered(chunks: list[Chunk], places: Any, rows: int, run: Computation) -> Iterator[Chunk]:
    """``rows`` is how many the window has."""
    table = joined([chunk.table for chunk in chunks])
    if len(places) and table.num_rows <= places.max():
        raise DataError(f"{chunks[-1].where}: the rows after it are missing; its file has changed. Read it again.")
    where = f"{len(chunks)} shuffled chunks, the first of them {chunks[0].where}"
    nbytes = table.nbytes * rows // max(1, table.num_rows)
    size = run.context.chunk_rows(nbytes, rows)
    if not len(places):
        yield Chunk(table.slice(0, 0), where)
    for at in range(0, len(places), size):
        yield Chunk(table.take(pa.array(places[at : at + size])), where)


def picked(piece: Piece, run: Computation, wanted: Any) -> Iterator[Chunk]:
    """The rows at these positions, in ascending order. The others are read where that is cheaper than to seek, but
    functions that give a row for each row are called with the wanted rows alone."""
    if not len(wanted):
        return
    if isinstance(piece, SequencePiece):
        yield from _of_sequence(piece, run, wanted)
    elif isinstance(piece, SlicePiece):
        yield from picked(piece.base, run, wanted + piece.start)
    elif isinstance(piece, MappedPiece) and piece.keeps_rows:
        for chunk in piece.in_batches(picked(piece.base, run, wanted)):
            yield run.apply(piece.ops, chunk)
    else:
        yield from _of_stream(piece, run, wanted)


def _of_sequence(piece: SequencePiece, run: Computation, wanted: Any) -> Iterator[Chunk]:
    at = 0
    for part, _, length in ranges(piece.parts, 0, piece.rows or 0):
        first, last = _places(wanted, at, at + length)
        yield from picked(part, run, wanted[first:last] - at)
        at += length


def _of_stream(piece: Piece, run: Computation, wanted: Any) -> Iterator[Chunk]:
    at = int(wanted[0])
    for chunk in piece.stream(run, at, int(wanted[-1]) + 1):
        end = at + chunk.table.num_rows
        first, last = _places(wanted, at, end)
        if last - first == end - at:
            yield chunk
        elif first < last:
            part = chunk.table.take(pa.array(wanted[first:last] - at))
            yield Chunk(part, f"{last - first} of {chunk.where}")
        at = end


def _places(wanted: Any, start: int, stop: int) -> tuple[int, int]:
    """Where the positions from ``start`` to before ``stop`` are among the wanted ones."""
    found: Any = np.searchsorted(wanted, np.array([start, stop]))
    first, last = found.tolist()
    return first, last
