"""Parquet: a piece for each row group, whose length the file says. To go to a row costs nothing for the
row groups before it.

A file that cannot be read is an error that names it, whoever asked: none is passed over.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.data.columns import rows_per_chunk
from holdfast.data.data_context import DataContext
from holdfast.data.file_access import DataFile
from holdfast.data.pieces import Chunk, between, span_text
from holdfast.errors import DataError, HoldfastError

_KEPT = 64  # footers, each of a file that was read lately
_AT_ONCE = 16
_footers: OrderedDict[tuple[str, int], Any] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class RowGroup:
    file: DataFile
    group: int
    first: int  # of its rows, in the file
    rows: int
    nbytes: int
    columns: tuple[str, ...] | None
    include_path: bool
    partitions: tuple[tuple[str, str], ...]

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        stop = self.rows if stop is None else min(stop, self.rows)
        chunks = between(self._whole(), start, stop)
        at = start
        for chunk in chunks:
            end = at + chunk.table.num_rows
            yield Chunk(self._extended(chunk.table), span_text(self.first + at, self.first + end, self.file.shown))
            at = end
        if at < stop:
            raise DataError(f"{self.file.shown} has fewer rows than its footer says: it is damaged.")

    def _whole(self) -> Iterator[Chunk]:
        context = DataContext.get_current()
        size = rows_per_chunk(self.nbytes, self.rows, context.target_chunk_bytes, context.target_chunk_rows)
        try:
            with self.file.open() as source:
                reader = pq.ParquetFile(source, metadata=footer(self.file), pre_buffer=not self.file.is_here)
                for batch in reader.iter_batches(size, [self.group], list(self.columns) if self.columns else None):
                    yield Chunk(pa.Table.from_batches([batch]), "")
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.file, error, f" (row group {self.group})") from error

    def _extended(self, table: pa.Table) -> pa.Table:
        for name, value in self.partitions:
            if name not in table.column_names:
                table = table.append_column(name, pa.repeat(_typed(value), table.num_rows))
        if self.include_path:
            table = table.append_column("path", pa.repeat(self.file.shown, table.num_rows))
        return table


def row_groups(files: Sequence[DataFile], columns: Sequence[str] | None, include_paths: bool) -> list[RowGroup]:
    """Reads the footers of all files."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(files)), thread_name_prefix="holdfast-data-footers") as pool:
        footers = list(pool.map(footer, files))
    found: list[RowGroup] = []
    for file, metadata in zip(files, footers, strict=True):
        _check_columns(file, metadata, columns)
        first = 0
        parts = _partitions(file)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows:
                wanted = tuple(name for name in columns if name not in dict(parts)) if columns else None
                found.append(
                    RowGroup(file, number, first, group.num_rows, group.total_byte_size, wanted, include_paths, parts)
                )
            first += group.num_rows
    return found


def footer(file: DataFile) -> Any:
    key = file.location.identity, file.size
    with _lock:
        if key in _footers:
            _footers.move_to_end(key)
            return _footers[key]
    try:
        with file.open() as source:
            metadata = pq.read_metadata(source)
    except HoldfastError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error
    with _lock:
        _footers[key] = metadata
        while len(_footers) > _KEPT:
            _footers.popitem(last=False)
    return metadata


def unreadable(file: DataFile, error: BaseException, part: str = "") -> DataError:
    return DataError(f"{file.shown}{part} cannot be read: {error}. Replace the file, or leave it out of the paths.")


def _check_columns(file: DataFile, metadata: Any, columns: Sequence[str] | None) -> None:
    has = metadata.schema.to_arrow_schema().names
    lacking = sorted(set(columns or ()) - set(has) - {name for name, _ in _partitions(file)})
    if lacking:
        raise ValueError(
            f"read_parquet(columns={list(columns or ())!r}): {file.shown} has no column {', '.join(lacking)}; "
            f"it has {', '.join(has)}"
        )


def _partitions(file: DataFile) -> tuple[tuple[str, str], ...]:
    """Of Hive's names of directories, as in ``year=2024/part-0.parquet``."""
    parts = str(file.location).split("/")[:-1]
    return tuple((name, value) for name, sign, value in (part.partition("=") for part in parts) if sign and name)


def _typed(value: str) -> Any:
    try:
        return int(value)
    except ValueError:
        return value
