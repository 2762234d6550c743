"""Parquet: a piece for each row group, whose length is in the file. Seeking to a row does not read the row groups
before it. A file that cannot be read is an error that names it; no file is skipped.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.data.calls import Computation
from holdfast.data.data_context import DataContext
from holdfast.data.file_access import DataFile
from holdfast.data.object_reader import changed
from holdfast.data.pieces import Chunk, between, span_text
from holdfast.errors import DataError, HoldfastError

_KEPT = 64  # footers, each of a file that was read lately
_AT_ONCE = 16
_footers: OrderedDict[Any, Any] = OrderedDict()
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

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        if not self.rows:
            return
        stop = self.rows if stop is None else min(stop, self.rows)
        chunks = between(self._whole(run), start, stop)
        at = start
        for chunk in chunks:
            end = at + chunk.table.num_rows
            yield Chunk(self._extended(chunk.table), span_text(self.first + at, self.first + end, self.file.shown))
            at = end
        if at < stop:
            raise DataError(f"{self.file.shown} has fewer rows than its footer says: it is damaged.")

    def empty_table(self, context: DataContext) -> pa.Table:
        table = footer(self.file, context)[0].schema.to_arrow_schema().empty_table()
        return self._extended(table if self.columns is None else table.select(self.columns))

    def _whole(self, run: Computation) -> Iterator[Chunk]:
        size = run.context.chunk_rows(self.nbytes, self.rows)
        try:
            with self.file.open(run.context) as source:
                metadata = self._metadata(run.context)
                reader = pq.ParquetFile(source, metadata=metadata, pre_buffer=not self.file.is_here)
                for batch in reader.iter_batches(
                    size, [self.group], None if self.columns is None else list(self.columns)
                ):
                    yield Chunk(pa.Table.from_batches([batch]), "")
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.file, error, f" (row group {self.group})") from error

    def _metadata(self, context: DataContext) -> Any:
        """The footer, if this is a row group of it: another machine's copy of the file may be another file."""
        metadata = footer(self.file, context)[0]
        if self.group >= metadata.num_row_groups or metadata.row_group(self.group).num_rows != self.rows:
            raise changed(self.file.shown, f"row group {self.group} had {self.rows} rows")
        return metadata

    def _extended(self, table: pa.Table) -> pa.Table:
        for name, value in self.partitions:
            if name not in table.column_names:
                table = table.append_column(name, pa.repeat(value, table.num_rows))
        if self.include_path:
            table = table.append_column("path", pa.repeat(self.file.shown, table.num_rows))
        return table


def row_groups(files: Sequence[DataFile], columns: Sequence[str] | None, include_paths: bool) -> list[RowGroup]:
    """Reads the footers of all files."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(files)), thread_name_prefix="holdfast-data-footers") as pool:
        footers = list(pool.map(footer, files))
    found: list[RowGroup] = []
    empty: RowGroup | None = None
    for metadata, file in footers:
        _check_columns(file, metadata, columns)
        first = 0
        inside = metadata.schema.to_arrow_schema().names
        parts = tuple(part for part in _partitions(file) if columns is None or part[0] in columns)
        wanted = tuple(name for name in columns if name in inside) if columns is not None else None
        empty = empty or RowGroup(file, 0, 0, 0, 0, wanted, include_paths, parts)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows:
                found.append(
                    RowGroup(file, number, first, group.num_rows, group.total_byte_size, wanted, include_paths, parts)
                )
            first += group.num_rows
    return found or [empty for _ in footers[:1] if empty is not None]  # it has the columns


def used_by(expression: Any, file: DataFile, known: Sequence[str]) -> list[str]:
    """The columns of the file that an expression needs, besides those that are known: without one of them it cannot be
    applied. pyarrow does not tell which they are."""
    schema = footer(file)[0].schema.to_arrow_schema()
    has = [*schema.names, *(name for name, _ in _partitions(file) if name not in schema.names)]

    def is_needed(name: str) -> bool:
        rest = pa.schema([field for field in schema if field.name != name])
        for other, _ in _partitions(file):
            if other != name and other not in schema.names:
                rest = rest.append(pa.field(other, pa.string()))
        try:
            rest.empty_table().filter(expression)
        except (pa.ArrowException, KeyError):
            return True
        return False

    return [name for name in has if name not in known and is_needed(name)]


def footer(file: DataFile, context: DataContext | None = None) -> tuple[Any, DataFile]:
    """The metadata, and the file with its version. Kept by version: a file that was rewritten is read again."""
    context = context or DataContext.get_current()
    found = _kept(file.location.identity, file.size, file.version) if file.version and not file.is_here else None
    if found is not None:
        return found, file
    try:
        source, version = file.opened(context)
        with source:
            found = _kept(file.location.identity, file.size, version()) if file.is_here else None
            metadata = pq.read_metadata(source) if found is None else found
        is_kept = bool(version()) and not file.is_fresh
    except HoldfastError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error
    if is_kept:
        with _lock:
            _footers[file.location.identity, file.size, version()] = metadata
            while len(_footers) > _KEPT:
                _footers.popitem(last=False)
    return metadata, file if file.is_here else replace(file, version=version())


def _kept(*key: Any) -> Any:
    with _lock:
        if key in _footers:
            _footers.move_to_end(key)
        return _footers.get(key)


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
