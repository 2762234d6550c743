"""Operations on rows: each op turns a chunk into another chunk. If user code fails in an op, the error names the rows
and the file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.calls import UserCall
from holdfast.data.columns import check_format, from_rows, joined, to_batch, to_column, to_rows, to_table
from holdfast.data.pieces import Chunk
from holdfast.errors import DataError, message_of


def user_call(
    caller: str,
    fn: Any,
    concurrency: Any = None,
    compute: Any = None,
    fn_args: Any = None,
    fn_kwargs: Any = None,
    fn_constructor_args: Any = None,
    fn_constructor_kwargs: Any = None,
) -> UserCall:
    """Checked when the plan is written, not when it is run."""
    if not callable(fn):
        raise TypeError(f"{caller}(fn={fn!r}): pass a function, or a class whose instances can be called")
    if isinstance(fn, type) and "__call__" not in dir(fn):
        raise TypeError(f"{caller}(fn={fn.__name__}): add a method __call__ to the class")
    if not isinstance(fn, type) and (fn_constructor_args or fn_constructor_kwargs):
        raise ValueError(f"{caller}(fn_constructor_args=...): {fn!r} is not a class; pass fn_args and fn_kwargs")
    if inspect.iscoroutinefunction(fn):
        raise TypeError(
            f"{caller}(fn={fn!r}): async functions are not supported; pass a plain function, with concurrency"
        )
    size = getattr(compute, "size", None) or getattr(compute, "max_size", None)
    wanted = concurrency if concurrency is not None else size
    if isinstance(wanted, tuple):  # as Ray's (smallest, largest) and (smallest, largest, first)
        wanted = wanted[1] if len(wanted) > 1 else wanted[0]
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1):
        raise ValueError(
            f"{caller}(concurrency={concurrency!r}): pass a whole number of at least 1, or a range of them"
        )
    return UserCall(
        fn,
        wanted,
        tuple(fn_args or ()),
        dict(fn_kwargs or {}),
        tuple(fn_constructor_args or ()),
        dict(fn_constructor_kwargs or {}),
    )


def _failed(op: str, user: UserCall, where: str, error: Exception) -> DataError:
    return DataError(f"{op}({user.name}) failed on {where}: {type(error).__name__}: {message_of(error)}")


@dataclass(frozen=True)
class MapBatches:
    """``changes_rows``: None if it is assumed to keep their number. This is checked where it matters."""

    user: UserCall
    batch_size: int | None
    batch_format: str | None
    changes_rows: bool | None
    writable: bool = False
    name: str = "map_batches"

    @property
    def keeps_rows(self) -> bool:
        return not self.changes_rows

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        size = self.batch_size or max(1, chunk.table.num_rows)
        made = []
        for at in range(0, chunk.table.num_rows, size):
            batch = chunk.table.slice(at, size)
            where = chunk.where if batch.num_rows == chunk.table.num_rows else f"batch {at // size} of {chunk.where}"
            table = self._called(batch, call, where)
            if not self.changes_rows and table.num_rows != batch.num_rows:
                raise DataError(
                    f"map_batches({self.user.name}) returned {table.num_rows} rows for {batch.num_rows}, on {where}. "
                    "If that is intended, pass udf_modifying_row_count=True to map_batches."
                )
            made.append(table)
        return Chunk(joined(made), chunk.where) if made else _unknown(chunk)

    def _called(self, batch: pa.Table, call: Any, where: str) -> pa.Table:
        given = to_batch(batch, self.batch_format)
        if self.writable and isinstance(given, dict):
            given = {name: array if array.flags.writeable else array.copy() for name, array in given.items()}
        try:
            result = call(given, *self.user.args, **self.user.kwargs)
            if isinstance(result, Iterator):
                return joined([to_table(part, self._told()) for part in result] or [batch.slice(0, 0)])
            return to_table(result, self._told())
        except Exception as error:
            raise _failed("map_batches", self.user, where, error) from error

    def _told(self) -> str:
        return f"what {self.user.name} returned"


@dataclass(frozen=True)
class MapRows:
    user: UserCall
    name: str = "map"
    keeps_rows: bool = True
    batch_size: int | None = None

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        made = [row for _, row in _each(self.name, self.user, chunk, call)]
        return Chunk(_table_of(made, self.user), chunk.where) if made else _unknown(chunk)


@dataclass(frozen=True)
class FlatMap:
    user: UserCall
    name: str = "flat_map"
    keeps_rows: bool = False
    batch_size: int | None = None

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        made: list[Any] = []
        for _, rows in _each(self.name, self.user, chunk, call):
            made += [rows] if isinstance(rows, Mapping) else list(rows)
        return Chunk(_table_of(made, self.user), chunk.where)


@dataclass(frozen=True)
class FilterRows:
    user: UserCall
    name: str = "filter"
    keeps_rows: bool = False
    batch_size: int | None = None

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        kept = [number for number, keep in _each(self.name, self.user, chunk, call) if keep]
        return Chunk(chunk.table.take(pa.array(kept, pa.int64())), chunk.where)


@dataclass(frozen=True)
class FilterExpression:
    """By an expression of ``pyarrow.compute``."""

    expression: Any
    name: str = "filter"
    keeps_rows: bool = False
    batch_size: int | None = None

    @property
    def choice(self) -> str:
        return f"{self.name}({self.expression})"

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        try:
            return Chunk(chunk.table.filter(self.expression), chunk.where)
        except (pa.ArrowException, KeyError) as error:
            raise DataError(f"filter(expr={self.expression}) failed on {chunk.where}: {error}") from error


@dataclass(frozen=True)
class SampleRows:
    """Each row with this probability, by its position in the chunk and where that is: the same in every pass."""

    fraction: float
    seed: int
    name: str = "random_sample"
    keeps_rows: bool = False
    batch_size: int | None = None

    @property
    def choice(self) -> str:
        return f"{self.name}({self.fraction}, {self.seed})"

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        from holdfast.data.permutations import key_of

        place = int.from_bytes(chunk.where.encode()[-64:], "little")
        draws = np.random.Generator(np.random.PCG64(key_of(self.seed, place))).random(chunk.table.num_rows)
        return Chunk(chunk.table.filter(pa.array(draws < self.fraction)), chunk.where)


@dataclass(frozen=True)
class ChangeColumns:
    """Columns selected, dropped or renamed."""

    name: str
    change: Callable[[pa.Table], pa.Table]
    keeps_rows: bool = True
    batch_size: int | None = None

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        try:
            return Chunk(self.change(chunk.table), chunk.where)
        except (KeyError, ValueError, pa.ArrowException) as error:
            has = ", ".join(chunk.table.column_names)
            raise DataError(f"{self.name}: {message_of(error)}, on {chunk.where}. It has the columns {has}.") from error


@dataclass(frozen=True)
class AddColumn:
    user: UserCall
    column: str
    batch_format: str
    name: str = "add_column"
    keeps_rows: bool = True
    batch_size: int | None = None

    def apply(self, chunk: Chunk, call: Any) -> Chunk:
        table = chunk.table
        if not table.num_rows:
            return _unknown(chunk)
        try:
            given = call(to_batch(table, self.batch_format), *self.user.args, **self.user.kwargs)
            values = pa.repeat(given, table.num_rows) if given is None or np.isscalar(given) else to_column(given)
            if len(values) != table.num_rows:
                raise ValueError(f"it returned {len(values)} values for {table.num_rows} rows")
        except Exception as error:
            raise _failed(f"add_column({self.column!r})", self.user, chunk.where, error) from error
        if self.column in table.column_names:
            return Chunk(table.set_column(table.column_names.index(self.column), self.column, values), chunk.where)
        return Chunk(table.append_column(self.column, values), chunk.where)


def _unknown(chunk: Chunk) -> Chunk:
    """Without rows, what the user's function would make of them is not known."""
    return Chunk(pa.table({}), chunk.where)


def check_batches(caller: str, batch_size: Any, batch_format: str | None) -> None:
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"{caller}(batch_size={batch_size!r}): must be at least 1, or None for whole blocks")
    check_format(caller, batch_format)


def _each(name: str, user: UserCall, chunk: Chunk, call: Any) -> Iterator[tuple[int, Any]]:
    for number, row in enumerate(to_rows(chunk.table)):
        try:
            made = call(row, *user.args, **user.kwargs)
            yield number, list(made) if isinstance(made, Iterator) else made
        except Exception as error:
            raise _failed(name, user, f"the row number {number} of {chunk.where}", error) from error


def _table_of(rows: list[Any], user: UserCall) -> pa.Table:
    return from_rows(rows, f"what {user.name} returned")
