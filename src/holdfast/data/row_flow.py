"""An epoch's rows by position: found directly if the length of every block is known, otherwise counted on the way.

A local shuffle permutes windows of positions, each by the seed, the epoch and the number of the window. So a position
is a place in the shuffled order, and the consumed rows stay a span, whatever the number of ranks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from holdfast.data.calls import Computation
from holdfast.data.columns import TablePart
from holdfast.data.data_context import DataContext
from holdfast.data.execution import Span as PieceSpan
from holdfast.data.execution import computed, computed_in
from holdfast.data.permutations import permutation
from holdfast.data.pieces import Chunk, Piece, Rows
from holdfast.data.shard_split import Span

_LOCAL = 3  # which order a key belongs to


@dataclass(frozen=True)
class LocalShuffle:
    window: int
    seed: int

    def shuffled(self, table: pa.Table, epoch: int, number: int) -> pa.Table:
        return table.take(pa.array(permutation(table.num_rows, self.seed, epoch, _LOCAL, number)))


class CountedRows:
    """Of pieces of known length."""

    def __init__(self, pieces: Sequence[Piece], epoch: int, shuffle: LocalShuffle | None, context: DataContext) -> None:
        self._pieces, self._epoch, self._shuffle, self._context = pieces, epoch, shuffle, context
        self._starts = [0, *accumulate(piece.rows or 0 for piece in pieces)]
        self.rows = self._starts[-1]

    def read(self, spans: Sequence[Span]) -> Generator[Chunk, None, None]:
        if self._shuffle is None:
            wanted = [each for start, stop in spans for each in self._found(start, stop)]
            with closing(computed(wanted, self._context)) as chunks:
                yield from (chunk for _, chunk in chunks)
            return
        with Computation(self._context) as run:
            for start, stop in spans:
                yield from self._shuffled(run, start, stop, self._shuffle)

    def _shuffled(self, run: Computation, start: int, stop: int, shuffle: LocalShuffle) -> Iterator[Chunk]:
        size = shuffle.window
        first, end = start - start % size, min(self.rows, -(-stop // size) * size)
        with closing(computed_in(run, self._found(first, end))) as chunks:
            rows = Rows(chunk for _, chunk in chunks)
            for at in range(first, end, size):
                table = rows.take(min(size, end - at))
                assert table is not None
                table = shuffle.shuffled(table, self._epoch, at // size)
                begin, last = max(start - at, 0), min(stop - at, table.num_rows)
                yield Chunk(table.slice(begin, last - begin), "")

    def _found(self, start: int, stop: int) -> list[PieceSpan]:
        found: list[PieceSpan] = []
        number = bisect_right(self._starts, start) - 1
        while start < stop and number < len(self._pieces):
            first, end = self._starts[number], self._starts[number + 1]
            if start < end:
                found.append(PieceSpan(self._pieces[number], start - first, min(stop, end) - first))
                start = min(stop, end)
            number += 1
        return found


@dataclass(frozen=True)
class Mark:
    """The first row that a block gives has this position."""

    block: int = 0
    position: int = 0


class CountingRows:
    """Of pieces whose length shows when they are computed. Goes forward only, from a mark."""

    def __init__(
        self, pieces: Sequence[Piece], epoch: int, shuffle: LocalShuffle | None, mark: Mark, context: DataContext
    ) -> None:
        self._marks = [mark]
        self._chunks = computed((PieceSpan(piece) for piece in pieces[mark.block :]), context)
        self._first, self._read = mark.block, mark.position
        self._epoch, self._shuffle = epoch, shuffle
        size = shuffle.window if shuffle is not None else 1
        self._begin = mark.position
        self.at = -(-mark.position // size) * size  # of the next row; a window that began earlier was taken whole
        self._rows = Rows(self._ordered())

    def _counted(self) -> Iterator[Chunk]:
        for number, chunk in self._chunks:
            block = self._first + number
            if block > self._marks[-1].block:
                self._marks.append(Mark(block, self._read))
            self._read += chunk.table.num_rows
            yield chunk

    def _ordered(self) -> Iterator[Chunk]:
        if self._shuffle is None:
            yield from self._counted()
            return
        size = self._shuffle.window
        rows = Rows(self._counted())
        number = -(-self._begin // size)
        rows.take(number * size - self._begin)
        while (table := rows.take(size)) is not None:
            yield Chunk(self._shuffle.shuffled(table, self._epoch, number), "")
            number += 1

    def fill(self, rows: int) -> int:
        return self._rows.fill(rows)

    def take(self, rows: int) -> pa.Table | None:
        part = self.cut(rows)
        return None if part is None else part.sliced()

    def cut(self, rows: int) -> TablePart | None:
        part = self._rows.cut(rows) if rows else None
        self.at += part.rows if part is not None else 0
        return part

    def skip_to(self, position: int) -> None:
        while self.at < position and self.take(min(position - self.at, 65_536)) is not None:
            pass

    def mark(self, position: int) -> Mark:
        """Where to resume to get to this position; the marks before it are forgotten."""
        floor = position - position % self._shuffle.window if self._shuffle is not None else position
        usable = [mark for mark in self._marks if mark.position <= floor]
        self._marks = [usable[-1], *(mark for mark in self._marks if mark.position > floor)]
        return usable[-1]

    def close(self) -> None:
        self._chunks.close()
