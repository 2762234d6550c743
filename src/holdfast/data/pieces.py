"""A dataset is a sequence of pieces. A piece is a recipe for some rows: where they come from, and how to get them.

``stream(run, start, stop)`` gives the rows from ``start`` to before ``stop`` of the piece, in chunks of a bounded size.
``run`` is the pass that they are for. Where chunks begin depends on the piece, the settings and ``start`` alone. A
piece can be pickled, and streamed by several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from holdfast.data.calls import Computation
from holdfast.data.columns import TablePart, joined
from holdfast.errors import DataError


class Chunk(NamedTuple):
    """``where`` names the rows for error messages, or the rows that they were made from."""

    table: pa.Table
    where: str


class Piece(Protocol):
    @property
    def rows(self) -> int | None:
        """The number of rows, if it is known without reading."""

    @property
    def nbytes(self) -> int:
        """The approximate size in memory; 0 if unknown."""

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]: ...


class Op(Protocol):
    """The operations on the rows of a chunk."""

    @property
    def name(self) -> str: ...

    @property
    def keeps_rows(self) -> bool:
        """Whether it returns one row for each row, in order."""

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

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        stop = self.rows if stop is None else min(stop, self.rows)
        size = run.context.chunk_rows(self.nbytes, self.rows)
        for at in range(start, stop, size):
            end = min(at + size, stop)
            yield Chunk(self.table.slice(at, end - at), span_text(at, end, self.where))


@dataclass(frozen=True)
class ComputedPiece:
    """Rows that ``make(start, stop)`` makes, of a kind that can begin anywhere."""

    make: Callable[[int, int], pa.Table]
    first: int
    rows: int
    row_bytes: int  # 0 if that is not known
    where: str

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Older versions pickled the bytes of all rows, and no ``row_bytes``."""
        self.__dict__.update({"row_bytes": state.get("nbytes", 0) // max(1, state["rows"]), **state})

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        stop = self.rows if stop is None else min(stop, self.rows)
        size = run.context.chunk_rows_of(self.row_bytes)
        for at in range(start, stop, size):
            end = min(at + size, stop)
            first, last = self.first + at, self.first + end
            yield Chunk(self.make(first, last), span_text(first, last, self.where))


@dataclass(frozen=True)
class MappedPiece:
    """A piece, with the operations on its rows. ``counted`` is its number of rows when they were counted."""

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
        """Everything that the ops returned for this piece. If the number of rows is not the counted one, positions are
        meaningless."""
        found, where = 0, "it"
        for chunk in chunks:
            found, where = found + chunk.table.num_rows, chunk.where
            if self.counted is not None and found > self.counted:
                break
            yield chunk
        if self.counted is not None and found != self.counted:
            raise DataError(
                f"{where}: a block that had {self.counted} rows when it was counted has {found} now. The "
                "functions of the dataset must give the same rows each time, and its files must not change."
            )

    @property
    def nbytes(self) -> int:
        return self.base.nbytes

    def source(self, run: Computation, start: int, stop: int | None) -> Iterator[Chunk]:
        """The input of the ops. Batches for the user's functions never cross the end of a piece."""
        return self.in_batches(self.base.stream(run, start, stop) if self.keeps_rows else self.base.stream(run))

    def in_batches(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        largest = max((op.batch_size or 0 for op in self.ops), default=0)
        return rechunked(chunks, largest) if largest else chunks

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        made = (run.apply(self.ops, chunk) for chunk in self.source(run, start, stop))
        return made if self.keeps_rows else between(self.as_counted(made), start, stop)


@dataclass(frozen=True)
class SlicePiece:
    """Some rows of a piece. ``stop`` is None for all that follow, if their number is unknown."""

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

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        end = self.stop if stop is None else self.start + stop
        if end is not None and self.stop is not None:
            end = min(end, self.stop)
        return self.base.stream(run, self.start + start, end)


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

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        if self.rows is None:
            yield from between((chunk for part in self.parts for chunk in part.stream(run)), start, stop)
            return
        for piece, first, last in ranges(self.parts, start, self.rows if stop is None else stop):
            yield from piece.stream(run, first, last)


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
        """The next ``rows`` rows, or those that remain; None at the end."""
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
    """Of a stream, the rows from ``start`` to before ``stop``, and chunks without rows, which tell the columns. What
    comes after is not read."""
    at = 0
    for chunk in chunks:
        if stop is not None and at >= stop:
            return
        if not chunk.table.num_rows:  # for its columns
            yield chunk
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
        if chunk.table.num_rows:
            where = _joined_text(where if held else "", chunk.where)
        where = where or chunk.where  # of a chunk without rows if there is no other
        held += chunk.table.num_rows
        whole = held - held % batch_size
        if whole:
            table = joined(tables)
            yield Chunk(table.slice(0, whole), where)
            tables, held = ([table.slice(whole)] if held > whole else []), held - whole
            where = chunk.where if held else ""
    if tables:
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
