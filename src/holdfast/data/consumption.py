"""The methods of ``Dataset`` that compute: they return rows to the script or write them."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.data import file_output
from holdfast.data.calls import Computation
from holdfast.data.columns import check_format, joined, to_batch, to_pandas, to_rows
from holdfast.data.data_context import DataContext
from holdfast.data.empty_tables import empty_table
from holdfast.data.execution import Span, computed
from holdfast.data.logical_plan import PlanNode, RowRange, is_counted, total_rows
from holdfast.data.pieces import Chunk, Piece

if TYPE_CHECKING:
    from holdfast.data.data_iterator import DataIterator
    from holdfast.data.dataset import Schema


class Consumption:
    """``_plan`` says what to compute."""

    _plan: PlanNode
    _files: tuple[str, ...]
    _context: DataContext | None

    @property
    def _settings(self) -> DataContext:
        return self._context or DataContext.get_current()

    def _pieces(self) -> Sequence[Piece]:
        """Of the first epoch."""
        return self._plan.pieces(0, self._settings)

    def _chunks(self, rows: int | None = None) -> Generator[Chunk, None, None]:
        plan = self._plan if rows is None else RowRange(self._plan, 0, rows)
        context = self._settings
        with closing(computed(map(Span, plan.pieces(0, context)), context)) as chunks:
            yield from (chunk for _, chunk in chunks if chunk.table.num_rows)

    def _first_table(self) -> pa.Table:
        """With the first row; or without rows, but with the columns, as far as they are known."""
        context, found = self._settings, pa.table({})
        pieces = RowRange(self._plan, 0, 1).pieces(0, context)
        with closing(computed(map(Span, pieces), context)) as chunks:
            for _, chunk in chunks:
                if chunk.table.num_rows:
                    return chunk.table
                found = chunk.table if chunk.table.num_columns else found
        if found.num_columns:
            return found
        with Computation(context) as run:
            empty = empty_table(self._pieces(), run)
        return found if empty is None else empty

    def iterator(self) -> DataIterator:
        """Return an iterator that counts epochs and has a state to save."""
        from holdfast.data.data_iterator import DataIterator

        return DataIterator(self._plan, None, self._context)

    def iter_batches(self, **options: Any) -> Iterable[Any]:
        """Like ``DataIterator.iter_batches``. Every pass is over the first epoch."""
        options.pop("_collate_fn", None)
        return _first_epoch(self, "iter_batches", options)

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        return _first_epoch(self, "iter_rows", {})

    def iter_torch_batches(self, **options: Any) -> Iterable[Any]:
        """Like ``DataIterator.iter_torch_batches``. Every pass is over the first epoch."""
        return _first_epoch(self, "iter_torch_batches", options)

    def iter_tf_batches(self, **options: Any) -> Iterable[Any]:
        return _first_epoch(self, "iter_tf_batches", options)

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        """Return a ``tf.data.Dataset`` of (features, labels)."""
        return self.iterator().to_tf(feature_columns, label_columns, **options)

    # Some of it

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        return [row for chunk in self._chunks(limit) for row in to_rows(chunk.table)]

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        rows = [row for chunk in self._chunks(None if limit is None else limit + 1) for row in to_rows(chunk.table)]
        if limit is not None and len(rows) > limit:
            raise ValueError(f"take_all(limit={limit}): the dataset has more rows; use take({limit})")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        check_format("take_batch", batch_format)
        tables = [chunk.table for chunk in self._chunks(batch_size)]
        if not tables or not sum(table.num_rows for table in tables):
            raise ValueError("take_batch: the dataset has no rows")
        return to_batch(joined(tables), batch_format)

    def show(self, limit: int = 20) -> None:
        for row in self.take(limit):
            print(row)

    def count(self) -> int:
        """Return the number of rows. Nothing is read if every file says how many rows it has and no operation changes
        the number."""
        pieces = self._pieces()
        if is_counted(pieces):
            return total_rows(pieces)
        return sum(chunk.table.num_rows for chunk in self._chunks())

    def schema(self, fetch_if_missing: bool = True) -> Schema:
        """Return the schema of the first rows. A dataset without rows has a schema too, unless a function would have to
        create its columns."""
        from holdfast.data.dataset import Schema

        return Schema(self._first_table().schema)

    def columns(self, fetch_if_missing: bool = True) -> list[str]:
        return self.schema().names

    def size_bytes(self) -> int:
        """Return the approximate size in memory, according to the files."""
        return sum(piece.nbytes for piece in self._pieces())

    def input_files(self) -> list[str]:
        return sorted(self._files)

    def stats(self) -> str:
        return f"{self!r}: {len(self._pieces())} blocks"

    # All of it

    def sum(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._aggregate("sum", on, ignore_nulls)

    def min(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._aggregate("min", on, ignore_nulls)

    def max(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._aggregate("max", on, ignore_nulls)

    def mean(self, on: Any = None, ignore_nulls: bool = True) -> Any:
        return self._aggregate("mean", on, ignore_nulls)

    def std(self, on: Any = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        return self._aggregate("std", on, ignore_nulls, ddof)

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Any]:
        """Return the distinct values in the order in which they occur."""
        found: dict[Any, None] = {}
        for chunk in self._chunks():
            found.update(dict.fromkeys(pc.unique(_column(chunk, column)).to_pylist()))
        return [value for value in found if value is not None or not ignore_nulls]

    def _aggregate(self, kind: str, on: Any, ignore_nulls: bool, ddof: int = 1) -> Any:
        names = [on] if isinstance(on, str) else list(on) if on is not None else _numbers(self.schema().base_schema)
        tallies = {name: _Tally(ignore_nulls) for name in names}
        for chunk in self._chunks():
            for name, tally in tallies.items():
                tally.add(_column(chunk, name))
        made = {name: tally.result(kind, ddof) for name, tally in tallies.items()}
        if len(made) == 1:
            return next(iter(made.values()))
        return {f"{kind}({name})": value for name, value in made.items()}

    def to_pandas(self, limit: int | None = None) -> Any:
        if limit is not None and self.count() > limit:
            raise ValueError(f"to_pandas(limit={limit}): the dataset has {self.count()} rows; use limit({limit}) first")
        return to_pandas(joined(self._blocks()))

    def to_arrow_refs(self) -> list[Any]:
        """Return a reference to a table for each block that has rows. ``holdfast.get`` returns the table."""
        from holdfast.objects import put

        return [put(table) for table in self._blocks() if table.num_rows]

    def _blocks(self) -> list[pa.Table]:
        found: dict[int, list[pa.Table]] = {}
        for number, chunk in computed(map(Span, self._pieces()), self._settings):
            found.setdefault(number, []).append(chunk.table)
        made = [joined(tables) for tables in found.values()]
        return [table for table in made if table.num_rows] or [self._first_table()]

    # Files

    def write_parquet(self, path: str, *, partition_cols: Any = None, filesystem: Any = None, **options: Any) -> None:
        """Write about one file per 128 MB, or per ``min_rows_per_file`` rows. Other options are those of pyarrow."""
        if partition_cols:
            raise TypeError("write_parquet(partition_cols=...) is not supported; write a dataset for each value")
        file_output.write_files(self._chunks(), "parquet", path, filesystem, options)

    def write_csv(self, path: str, *, filesystem: Any = None, **options: Any) -> None:
        file_output.write_files(self._chunks(), "csv", path, filesystem, options)

    def write_json(self, path: str, *, filesystem: Any = None, **options: Any) -> None:
        """Write JSON files with one object per line."""
        file_output.write_files(self._chunks(), "json", path, filesystem, options)


class _Tally:
    """Sums that several chunks add to; the deviations are summed about the mean so far, so that nothing cancels."""

    def __init__(self, ignore_nulls: bool) -> None:
        self._ignore = ignore_nulls
        self._count, self._mean, self._deviations = 0, 0.0, 0.0
        self._sum: Any = None
        self._least: Any = None
        self._most: Any = None
        self._has_null = False

    def add(self, column: Any) -> None:
        self._has_null = self._has_null or column.null_count > 0
        count = len(column) - column.null_count
        if not count:
            return
        least, most = (value.as_py() for value in pc.min_max(column).values())
        self._least = least if self._least is None else min(self._least, least)
        self._most = most if self._most is None else max(self._most, most)
        if not (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)
        ):
            return
        added = pc.sum(column).as_py()
        self._sum = added if self._sum is None else self._sum + added
        mean, variance = added / count, pc.variance(pc.cast(column, pa.float64())).as_py()
        total, apart = self._count + count, mean - self._mean
        self._deviations += variance * count + apart * apart * self._count * count / total
        self._mean += apart * count / total
        self._count = total

    def result(self, kind: str, ddof: int) -> Any:
        if self._has_null and not self._ignore:
            return None
        if kind in ("min", "max"):
            return self._least if kind == "min" else self._most
        if kind == "sum":
            return self._sum
        if kind == "mean":
            return self._sum / self._count if self._count else None
        if self._count > ddof:
            return math.sqrt(self._deviations / (self._count - ddof))
        return math.nan if self._count else None


def _numbers(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)]


def _column(chunk: Chunk, name: str) -> Any:
    if name not in chunk.table.column_names:
        raise ValueError(f"no column {name!r}; the dataset has {', '.join(chunk.table.column_names)}")
    return chunk.table.column(name)


def _first_epoch(data: Consumption, how: str, options: dict[str, Any]) -> Iterable[Any]:
    from holdfast.data.batch_iterables import Repeatable

    getattr(data.iterator(), how)(**options)  # find a wrong argument now
    return Repeatable(lambda: iter(getattr(data.iterator(), how)(**options)))
