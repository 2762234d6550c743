"""What a saved cursor fits: a digest of a plan and of its sources.

Positions mean the same rows if the same blocks have as many rows, in the same order. So the digest is of the names,
sizes and row groups of files, of tables in memory, and of the operations that choose and order rows. It leaves out the
directory of the files and when they were written, since a copy has the same rows. It leaves out the user's functions,
because a corrected function must not make a checkpoint unusable.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.columns import PythonObjectType
from holdfast.data.file_access import DataFile
from holdfast.data.file_sources import FilePiece, ImageFiles
from holdfast.data.logical_plan import CountedBlocks, InMemory, Listed, PlanNode, Rowwise
from holdfast.data.parquet_source import RowGroup
from holdfast.data.pieces import Piece

_WHOLE_BYTES = 256 << 20  # tables up to this size are hashed as a whole
_SAMPLES, _SAMPLE_ROWS = 256, 1024  # of a larger one


def digest_of(plan: PlanNode) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in _parts(plan):
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def _parts(plan: PlanNode) -> Iterator[bytes]:
    yield f"{type(plan).__name__} {plan.text()}".encode()
    if isinstance(plan, InMemory):
        yield from [plan.recipe.encode()] if plan.recipe else _of_tables(plan.tables)
        yield repr([table.num_rows for table in plan.tables]).encode()
    elif isinstance(plan, Listed):
        yield from _of_pieces(plan.listed)
    elif isinstance(plan, Rowwise):
        yield repr([getattr(op, "choice", op.name) for op in plan.ops]).encode()
    elif isinstance(plan, CountedBlocks):
        yield repr(plan.counts).encode()
    for base in plan.inputs():
        yield from _parts(base)


def _of_tables(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Of the bytes that Arrow writes. Pickled objects differ from process to process, so only their number counts."""
    for table in tables:
        plain = [name for name, kind in zip(table.column_names, table.schema.types, strict=True) if _is_plain(kind)]
        yield repr(table.column_names).encode()
        for part in _sampled(table.select(plain)):
            sink = _HashingSink()
            with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, _bare(part.schema)) as writer:
                writer.write_table(_without_hidden_values(part.replace_schema_metadata(None).combine_chunks()))
            yield sink.digest()


def _is_plain(kind: Any) -> bool:
    return not isinstance(kind, PythonObjectType)


def _bare(schema: pa.Schema) -> pa.Schema:
    return schema.remove_metadata()


def _without_hidden_values(table: pa.Table) -> pa.Table:
    """What lies under a null depends on who made the table: pandas leaves NaN there. ``take`` leaves nothing."""
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if column.null_count:
            with suppress(pa.ArrowNotImplementedError):  # of rare types, such as views of texts: they stay as they are
                column = column.take(pa.array(np.arange(table.num_rows)))
            table = table.set_column(number, field, column)
    return table.combine_chunks()


def _sampled(table: pa.Table) -> Iterator[pa.Table]:
    if table.nbytes <= _WHOLE_BYTES:
        yield table
        return
    for number in range(_SAMPLES):
        yield table.slice(number * max(0, table.num_rows - _SAMPLE_ROWS) // (_SAMPLES - 1), _SAMPLE_ROWS)


class _HashingSink:
    """A file that keeps nothing of what is written."""

    def __init__(self) -> None:
        self._hash, self.closed = hashlib.blake2b(digest_size=16), False

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return len(data)

    def digest(self) -> bytes:
        return self._hash.digest()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _of_pieces(pieces: Sequence[Piece]) -> Iterator[bytes]:
    names = _names([file for piece in pieces for file in _files(piece)])
    for piece in pieces:
        yield repr([(names[file], file.size) for file in _files(piece)]).encode()
        yield repr((piece.group, piece.nbytes) if isinstance(piece, RowGroup) else None).encode()
        yield repr(piece.rows).encode()


def _files(piece: Piece) -> tuple[DataFile, ...]:
    if isinstance(piece, (RowGroup, FilePiece)):
        return (piece.file,)
    return piece.files if isinstance(piece, ImageFiles) else ()


def _names(files: Sequence[DataFile]) -> dict[DataFile, str]:
    """Below the directory that they have in common, so that they may be moved together."""
    shown = {file: file.shown.replace(os.sep, "/") for file in files}
    parents = {posixpath.dirname(name) for name in shown.values()}
    same = posixpath.commonprefix([f"{parent}/" for parent in parents]).rpartition("/")[0] + "/"
    return {file: name.removeprefix(same) for file, name in shown.items()}
