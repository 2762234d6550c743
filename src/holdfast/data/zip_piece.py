"""Two datasets side by side, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from holdfast.data.calls import Computation
from holdfast.data.pieces import Chunk, Piece, Rows
from holdfast.errors import DataError


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

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        right = Rows(self.right.stream(run, start, stop))
        for chunk in self.left.stream(run, start, stop):
            if not chunk.table.num_rows:
                continue
            other = right.take(chunk.table.num_rows)
            if other is None or other.num_rows != chunk.table.num_rows:
                raise DataError(f"zip: the other dataset has fewer rows than this one: it ends beside {chunk.where}.")
            yield Chunk(side_by_side(chunk.table, other), chunk.where)
        if right.take(1) is not None:
            raise DataError("zip: the other dataset has more rows than this one.")


def side_by_side(left: pa.Table, right: pa.Table) -> pa.Table:
    for name in right.column_names:
        fresh, number = name, 1
        while fresh in left.column_names:
            fresh, number = f"{name}_{number}", number + 1
        left = left.append_column(fresh, right.column(name))
    return left
