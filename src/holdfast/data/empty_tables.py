"""The columns of a dataset without rows. No user function is called to find them: after ``map`` and similar methods
they are unknown."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from holdfast.data.calls import Computation
from holdfast.data.parquet_source import RowGroup
from holdfast.data.pieces import Chunk, ComputedPiece, MappedPiece, Piece, SequencePiece, SlicePiece, TablePiece
from holdfast.data.shuffle_window import WindowPiece
from holdfast.data.zip_piece import ZipPiece, side_by_side


def empty_table(pieces: Iterable[Piece], run: Computation) -> pa.Table | None:
    """Of the first piece whose columns are known."""
    made = (_of_piece(piece, run) for piece in pieces)
    return next((table for table in made if table is not None and table.num_columns), None)


def _of_piece(piece: Piece, run: Computation) -> pa.Table | None:
    if isinstance(piece, TablePiece):
        return piece.table.slice(0, 0)
    if isinstance(piece, RowGroup):
        return piece.empty_table(run.context)
    if isinstance(piece, ComputedPiece):
        return piece.make(piece.first, piece.first + 1).slice(0, 0) if piece.rows else None
    if isinstance(piece, MappedPiece):
        base = _of_piece(piece.base, run)
        return None if base is None else run.apply(piece.ops, Chunk(base, "no rows")).table
    if isinstance(piece, SlicePiece):
        return _of_piece(piece.base, run)
    if isinstance(piece, (SequencePiece, WindowPiece)):
        return empty_table(piece.parts, run)
    if isinstance(piece, ZipPiece):
        left, right = _of_piece(piece.left, run), _of_piece(piece.right, run)
        return None if left is None or right is None else side_by_side(left, right)
    return None
