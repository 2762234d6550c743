"""A dataset as a tree: sources, and operations on them. ``pieces(epoch, context)`` is the order of an epoch's
rows; what has to be computed to know it is computed with these settings.

A plan can be pickled, and gives the same pieces in every process. ``is_counted`` tells whether
the number of rows of every piece is known before anything is read; then any row can be found by its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from holdfast.data.columns import joined
from holdfast.data.data_context import DataContext
from holdfast.data.execution import Span, computed
from holdfast.data.permutations import permutation
from holdfast.data.pieces import (
    MappedPiece,
    Op,
    Piece,
    SequencePiece,
    SlicePiece,
    TablePiece,
    ranges,
)
from holdfast.data.shuffle_window import WindowPiece
from holdfast.data.zip_piece import ZipPiece
from holdfast.errors import DataError

_BLOCKS, _ROWS = 1, 2  # which order a key belongs to


class PlanNode(Protocol):
    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]: ...

    def inputs(self) -> tuple[PlanNode, ...]: ...

    def text(self) -> str:
        """The names of its operations, and seeds. It is in saved cursors, so an operation keeps its text."""


def is_counted(pieces: Sequence[Piece]) -> bool:
    return all(piece.rows is not None for piece in pieces)


def total_rows(pieces: Sequence[Piece]) -> int:
    return sum(piece.rows or 0 for piece in pieces)


def whole_table(pieces: Sequence[Piece], context: DataContext) -> pa.Table:
    tables = [chunk.table for _, chunk in computed(map(Span, pieces), context)]
    return joined(tables) if tables else pa.table({})


@dataclass(frozen=True)
class InMemory:
    """``recipe`` is the digest of the plan that the tables were computed from. Their values may then differ in the last
    bits from machine to machine."""

    tables: tuple[pa.Table, ...]
    where: str
    recipe: str = ""

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        parts = len(self.tables)
        return [
            TablePiece(table, self.where if parts == 1 else f"block {number} of {self.where}")
            for number, table in enumerate(self.tables)
        ]

    def inputs(self) -> tuple[PlanNode, ...]:
        return ()

    def text(self) -> str:
        return self.where


@dataclass(frozen=True)
class Listed:
    """Pieces that were created before."""

    listed: tuple[Piece, ...]
    where: str

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        return self.listed

    def inputs(self) -> tuple[PlanNode, ...]:
        return ()

    def text(self) -> str:
        return self.where


@dataclass(frozen=True)
class Rowwise:
    base: PlanNode
    ops: tuple[Op, ...]

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        return [MappedPiece(piece, self.ops) for piece in self.base.pieces(epoch, context)]

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return " | ".join([self.base.text(), *(op.name for op in self.ops)])


@dataclass(frozen=True)
class CountedBlocks:
    """Blocks whose rows were counted: each is known by its number, so the base must not change with the epoch."""

    base: PlanNode
    counts: tuple[int, ...]

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        pairs = zip(self.base.pieces(0, context), self.counts, strict=True)
        return [
            replace(piece, counted=rows) if isinstance(piece, MappedPiece) else MappedPiece(piece, (), rows)
            for piece, rows in pairs
        ]

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return f"{self.base.text()} | counted"


def block_rows(pieces: Sequence[Piece], context: DataContext) -> tuple[int, ...]:
    """Computes all rows, and keeps none."""
    counts = [0] * len(pieces)
    for number, chunk in computed(map(Span, pieces), context):
        counts[number] += chunk.table.num_rows
    return tuple(counts)


def with_op(base: PlanNode, op: Op) -> PlanNode:
    return Rowwise(base.base, (*base.ops, op)) if isinstance(base, Rowwise) else Rowwise(base, (op,))


@dataclass(frozen=True)
class BlockOrder:
    base: PlanNode
    seed: int

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        pieces = self.base.pieces(epoch, context)
        return [pieces[number] for number in permutation(len(pieces), self.seed, epoch, _BLOCKS)]

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return f"{self.base.text()} | randomize_block_order({self.seed})"


@dataclass(frozen=True)
class Shuffle:
    """The blocks in another order, and as many of them together as fit in the window shuffled by row."""

    base: PlanNode
    seed: int
    window_bytes: int

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        windows: list[Piece] = []
        group: list[Piece] = []
        held = 0
        for piece in BlockOrder(self.base, self.seed).pieces(epoch, context):
            if group and held + piece.nbytes > self.window_bytes:
                windows.append(self._window(group, epoch, len(windows)))
                group, held = [], 0
            group.append(piece)
            held += piece.nbytes
        return [*windows, self._window(group, epoch, len(windows))] if group else windows

    def _window(self, group: list[Piece], epoch: int, number: int) -> Piece:
        return WindowPiece(tuple(group), (self.seed, epoch, _ROWS, number))

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return f"{self.base.text()} | random_shuffle({self.seed}, {self.window_bytes})"


@dataclass(frozen=True)
class RowRange:
    """The rows from ``start`` to before ``stop``."""

    base: PlanNode
    start: int
    stop: int | None

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        pieces = self.base.pieces(epoch, context)
        if not is_counted(pieces):
            return [SlicePiece(SequencePiece(tuple(pieces)), self.start, self.stop)]
        stop = total_rows(pieces) if self.stop is None else self.stop
        chosen: list[Piece] = [
            piece if (first, last) == (0, piece.rows) else SlicePiece(piece, first, last)
            for piece, first, last in ranges(pieces, self.start, stop)
        ]
        return chosen or [SlicePiece(piece, 0, 0) for piece in pieces[:1]]  # it has the columns

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return f"{self.base.text()} | rows {self.start}-{self.stop}"


@dataclass(frozen=True)
class Chain:
    bases: tuple[PlanNode, ...]

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        return [piece for base in self.bases for piece in base.pieces(epoch, context)]

    def inputs(self) -> tuple[PlanNode, ...]:
        return self.bases

    def text(self) -> str:
        return f"union({', '.join(base.text() for base in self.bases)})"


@dataclass(frozen=True)
class Zip:
    left: PlanNode
    right: PlanNode

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        left, right = self.left.pieces(epoch, context), self.right.pieces(epoch, context)
        if not is_counted(left) or not is_counted(right):
            return [ZipPiece(SequencePiece(tuple(left)), SequencePiece(tuple(right)))]
        if total_rows(left) != total_rows(right):
            raise DataError(
                f"zip: this dataset has {total_rows(left)} rows and the other {total_rows(right)}. Use limit() to make "
                "them equal."
            )
        other = SequencePiece(tuple(right))
        made: list[Piece] = []
        at = 0
        for piece in left:
            rows = piece.rows or 0
            made.append(ZipPiece(piece, SlicePiece(other, at, at + rows)))
            at += rows
        return made

    def inputs(self) -> tuple[PlanNode, ...]:
        return self.left, self.right

    def text(self) -> str:
        return f"zip({self.left.text()}, {self.right.text()})"


@dataclass(frozen=True)
class Repartition:
    """Into this many blocks, or blocks of this many rows. Uncounted data is computed first."""

    base: PlanNode
    blocks: int | None
    block_rows: int | None

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        pieces = self.base.pieces(epoch, context)
        if not is_counted(pieces):
            pieces = [TablePiece(whole_table(pieces, context), self.base.text())]
        rows = total_rows(pieces)
        blocks = self.blocks or max(1, -(-rows // (self.block_rows or 1)))
        size = self.block_rows
        edges = [min(rows, number * size) if size else number * rows // blocks for number in range(blocks + 1)]
        whole = SequencePiece(tuple(pieces))
        return [SlicePiece(whole, first, last) for first, last in pairwise(edges)]

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return f"{self.base.text()} | repartition({self.blocks or self.block_rows})"


@dataclass(frozen=True)
class Sorted:
    """Computed as a whole, in memory, once for each pass."""

    base: PlanNode
    keys: tuple[tuple[str, str], ...]
    _made: dict[int, list[Piece]] = field(default_factory=dict, compare=False, repr=False)

    def pieces(self, epoch: int, context: DataContext) -> Sequence[Piece]:
        if epoch not in self._made:
            table = whole_table(self.base.pieces(epoch, context), context)
            try:
                table = table.sort_by(list(self.keys)) if table.num_rows else table
            except (KeyError, pa.ArrowException) as error:
                has = ", ".join(table.column_names)
                keys, reason = ", ".join(key for key, _ in self.keys), str(error).splitlines()[0]
                raise DataError(f"sort({keys}): {reason}. The dataset has the columns {has}.") from error
            self._made.clear()
            self._made[epoch] = [TablePiece(table, f"sorted {self.base.text()}")]
        return self._made[epoch]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    def inputs(self) -> tuple[PlanNode, ...]:
        return (self.base,)

    def text(self) -> str:
        return f"{self.base.text()} | sort({', '.join(f'{key} {order}' for key, order in self.keys)})"
