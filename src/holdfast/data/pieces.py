"""A dataset is a sequence of pieces. A piece is a recipe for some rows: where they come from, and how to get them.

``stream(start, stop)`` gives the rows from ``start`` to before ``stop`` of the piece, in chunks of a bounded size.
Where chunks begin depends on the piece and on ``start`` alone. A piece can be pickled, and streamed by several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from holdfast.data.columns import TablePart, joined, rows_per_chunk
from holdfast.data.data_context import DataContext
from holdfast.data.permutations import permutation
from holdfast.errors import DataError


class Chunk(NamedTuple):
    """``where`` says for people which rows these are, or were made of."""

    table: pa.Table
    where: str


class Piece(Protocol):
    @property
    def rows(self) -> int | None:
        """How many, if that is known without reading them."""

    @property
    def nbytes(self) -> int:
        """About how large in memory; 0 if that is not known."""

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]: ...


class Op(Protocol):
    """What is done to the rows of a chunk."""

    @property
    def name(self) -> str: ...

    @property
    def keeps_rows(self) -> bool:
        """Whether it gives one row for each row, in order."""

    @property
    def batch_size(self) -> int | None: ...

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        """``call`` is the user's function, or an instance of the user's class."""


@dataclass(frozen=True)
class TablePiece:
    """Rows in memory."""

    table: pa.Table
    where: str

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes)

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        stop = self.rows if stop is None else min(stop, self.rows)
        context = DataContext.get_current()
        size = rows_per_chunk(self.nbytes, self.rows, context.target_chunk_bytes, context.target_chunk_rows)
        for at in range(start, stop, size):
            end = min(at + size, stop)
            yield Chunk(self.table.slice(at, end - at), span_text(at, end, self.where))


@dataclass(frozen=True)
class ComputedPiece:
    """Rows that ``make(start, stop)`` makes, of a kind that can begin anywhere."""

    make: Callable[[int, int], pa.Table]
    first: int
    rows: int
    nbytes: int
    chunk_rows: int
    where: str

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        stop = self.rows if stop is None else min(stop, self.rows)
        for at in range(start, stop, self.chunk_rows):
            end = min(at + self.chunk_rows, stop)
            first, last = self.first + at, self.first + end
            yield Chunk(self.make(first, last), span_text(first, last, self.where))


@dataclass(frozen=True)
class MappedPiece:
    """A piece, with what is done to its rows. ``counted`` is how many it gave when they were counted."""

    base: Piece
    ops: tuple[Op, ...]
    counted: int | None = None

    @property
    def keeps_rows(self) -> bool:
        return all(op.keeps_rows for op in self.ops)

    @property
    def rows(self) -> int | None:
        if self.counted is not None:
            return self.counted
        return self.base.rows if self.keeps_rows else None

    def as_counted(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """All that the ops gave for this piece. If it is not as many rows as were counted, positions mean nothing."""
        found, where = 0, "it"
        for chunk in chunks:
            found, where = found + chunk.table.num_rows, chunk.where
            if self.counted is not None and found > self.counted:
                break
            yield chunk
        if self.counted is not None and found != self.counted:
            raise DataError(
                f"{where}: a block that had {self.counted} rows when they were counted gives {found} now. The "
                "functions of the dataset must give the same rows each time, and its files must not change."
            )

    @property
    def nbytes(self) -> int:
        return self.base.nbytes

    def source(self, start: int, stop: int | None) -> Iterator[Chunk]:
        """What the ops are applied to. Batches for the user's functions never cross the end of a piece."""
        chunks = self.base.stream(start, stop) if self.keeps_rows else self.base.stream()
        largest = max((op.batch_size or 0 for op in self.ops), default=0)
        return rechunked(chunks, largest) if largest else chunks

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        from holdfast.data.calls import Calls

        with Calls.of(self.ops) as calls:
            made = (calls.apply(chunk) for chunk in self.source(start, stop))
            yield from made if self.keeps_rows else between(self.as_counted(made), start, stop)


@dataclass(frozen=True)
class SlicePiece:
    """Some rows of a piece. ``stop`` is None for all that follow, where nobody knows how many."""

    base: Piece
    start: int
    stop: int | None

    @property
    def rows(self) -> int | None:
        if self.base.rows is None:
            return None
        return max(0, min(self.base.rows, self.base.rows if self.stop is None else self.stop) - self.start)

    @property
    def nbytes(self) -> int:
        return self.base.nbytes * (self.rows or 0) // max(1, self.base.rows or 0)

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        end = self.stop if stop is None else self.start + stop
        if end is not None and self.stop is not None:
            end = min(end, self.stop)
        return self.base.stream(self.start + start, end)


@dataclass(frozen=True)
class SequencePiece:
    """Several pieces as one."""

    parts: tuple[Piece, ...]

    @property
    def rows(self) -> int | None:
        counts = [part.rows for part in self.parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        if self.rows is None:
            yield from between((chunk for part in self.parts for chunk in part.stream()), start, stop)
            return
        for piece, first, last in ranges(self.parts, start, self.rows if stop is None else stop):
            yield from piece.stream(first, last)


@dataclass(frozen=True)
class WindowPiece:
    """Several pieces, held in memory together and shuffled by row."""

    parts: tuple[Piece, ...]
    key: tuple[int, ...]

    @property
    def rows(self) -> int | None:
        return SequencePiece(self.parts).rows

    @property
    def nbytes(self) -> int:
        return SequencePiece(self.parts).nbytes

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        chunks = list(SequencePiece(self.parts).stream())
        if not chunks:
            return
        table = joined([chunk.table for chunk in chunks])
        order = permutation(table.num_rows, *self.key)[start:stop]
        where = f"{len(chunks)} shuffled chunks, the first of them {chunks[0].where}"
        context = DataContext.get_current()
        size = rows_per_chunk(table.nbytes, table.num_rows, context.target_chunk_bytes, context.target_chunk_rows)
        for at in range(0, len(order), size):
            yield Chunk(table.take(pa.array(order[at : at + size])), where)


@dataclass(frozen=True)
class ZipPiece:
    """The columns of two pieces side by side. A name that the left one has gets a suffix in the right one."""

    left: Piece
    right: Piece

    @property
    def rows(self) -> int | None:
        return self.left.rows if self.right.rows is not None else None

    @property
    def nbytes(self) -> int:
        return self.left.nbytes + self.right.nbytes

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        right = Rows(self.right.stream(start, stop))
        for chunk in self.left.stream(start, stop):
            other = right.take(chunk.table.num_rows)
            if other is None or other.num_rows != chunk.table.num_rows:
                raise DataError(f"zip: the other dataset has fewer rows than this one: it ends beside {chunk.where}.")
            yield Chunk(_side_by_side(chunk.table, other), chunk.where)
        if right.take(1) is not None:
            raise DataError("zip: the other dataset has more rows than this one.")


def _side_by_side(left: pa.Table, right: pa.Table) -> pa.Table:
    for name in right.column_names:
        fresh, number = name, 1
        while fresh in left.column_names:
            fresh, number = f"{name}_{number}", number + 1
        left = left.append_column(fresh, right.column(name))
    return left


class Rows:
    """A stream of chunks, from which any number of rows can be taken."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._tables: deque[pa.Table] = deque()
        self._used = 0  # of the first table
        self.held = 0

    def fill(self, rows: int) -> int:
        """Read on until so many are held, if there are; how many are held is returned."""
        while self.held < rows:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self.add(chunk.table)
        return self.held

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self.held += table.num_rows

    def take(self, rows: int) -> pa.Table | None:
        """The next ``rows`` rows, or what there is; None at the end."""
        part = self.cut(rows)
        return None if part is None else part.sliced()

    def cut(self, rows: int) -> TablePart | None:
        """As ``take``, without slicing the columns."""
        rows = min(rows, self.fill(rows))
        if rows == 0:
            return None
        head = self._tables[0]
        if self._used + rows < head.num_rows:
            self._used += rows
            self.held -= rows
            return TablePart(head, self._used - rows, rows)
        taken: list[pa.Table] = []
        lacking = rows
        while lacking:
            head = self._tables[0]
            taken.append(head.slice(self._used, lacking))
            self._used += taken[-1].num_rows
            lacking -= taken[-1].num_rows
            if self._used == head.num_rows:
                self._tables.popleft()
                self._used = 0
        self.held -= rows
        return TablePart(joined(taken), 0, rows)


def between(chunks: Iterator[Chunk], start: int, stop: int | None) -> Iterator[Chunk]:
    """Of a stream, the rows from ``start`` to before ``stop``. What comes after is not read."""
    at = 0
    for chunk in chunks:
        if stop is not None and at >= stop:
            return
        first = max(0, start - at)
        last = chunk.table.num_rows if stop is None else min(chunk.table.num_rows, stop - at)
        at += chunk.table.num_rows
        if first < last:
            yield Chunk(chunk.table.slice(first, last - first), chunk.where)


def rechunked(chunks: Iterator[Chunk], batch_size: int) -> Iterator[Chunk]:
    """The same rows in chunks of whole batches, but for the last."""
    tables: list[pa.Table] = []
    held, where = 0, ""
    for chunk in chunks:
        tables.append(chunk.table)
        held += chunk.table.num_rows
        where = _joined_text(where, chunk.where)
        whole = held - held % batch_size
        if whole:
            table = joined(tables)
            yield Chunk(table.slice(0, whole), where)
            tables, held = ([table.slice(whole)] if held > whole else []), held - whole
            where = chunk.where if held else ""
    if held:
        yield Chunk(joined(tables), where)


def _joined_text(first: str, second: str) -> str:
    return second if not first or first == second else f"{first} to {second}"


def ranges(pieces: Sequence[Piece], start: int, stop: int) -> Iterator[tuple[Piece, int, int]]:
    """The pieces of known length that hold the rows from ``start`` to before ``stop``, and which of their rows."""
    at = 0
    for piece in pieces:
        length = piece.rows
        assert length is not None
        first, last = max(start - at, 0), min(stop - at, length)
        at += length
        if first < last:
            yield piece, first, last
        if at >= stop:
            return


def span_text(start: int, stop: int, where: str) -> str:
    return f"rows {start}-{stop - 1} of {where}" if stop > start + 1 else f"row {start} of {where}"
