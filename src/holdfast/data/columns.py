"""Rows, dicts of arrays and data frames as Arrow tables, and back.

An array of several dimensions is a column of tensors of one shape. A value that Arrow has no type for (an image of
PIL's, a tuple with tensors) is kept as a Python object, in memory only: it cannot be written to a file.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pyarrow as pa

from holdfast.errors import DataError

FORMATS = ("default", "numpy", "pandas", "pyarrow")


class PythonObjectType(pa.ExtensionType):  # type: ignore[misc]
    """Of a column of Python objects, each of them pickled."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "holdfast.object")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> PythonObjectType:
        return cls()


class TablePart(NamedTuple):
    """Some rows of a table, whose columns are not sliced before they are needed."""

    table: pa.Table
    start: int
    rows: int

    def sliced(self) -> pa.Table:
        return self.table if self.rows == self.table.num_rows else self.table.slice(self.start, self.rows)


class ArrayCutter:
    """Parts of tables as dicts of numpy arrays. Columns of plain numbers are converted once for each table."""

    def __init__(self) -> None:
        self._table: pa.Table | None = None
        self._columns: list[tuple[str, Any, bool]] = []

    def __call__(self, part: TablePart) -> dict[str, Any]:
        if part.table is not self._table:
            self._table = part.table
            self._columns = [_convertible(name, part.table.column(name)) for name in part.table.column_names]
        start, rows = part.start, part.rows
        return {
            name: column[start : start + rows] if is_array else from_column(column.slice(start, rows))
            for name, column, is_array in self._columns
        }


def _convertible(name: str, column: Any) -> tuple[str, Any, bool]:
    """The column as an array, if its parts are the same as parts of that array."""
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return name, from_column(column), True
    return name, column, False


def to_column(values: Any) -> Any:
    """An Arrow array of a column's values: an array, a tensor, a series or a list."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    if _is_of_pandas(values):
        return pa.Array.from_pandas(values)
    if isinstance(values, np.ndarray):
        return _of_array(values)
    return _of_items(list(values))


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"


def _of_array(array: Any) -> Any:
    if array.dtype.hasobject:
        return _of_items(list(array))
    if array.ndim <= 1:
        return pa.array(array if array.dtype.kind not in "US" else array.tolist())
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))


def _of_items(items: list[Any]) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(item, torch.Tensor) for item in items):
        items = [item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else item for item in items]
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    if arrays and len(arrays) == len(items):
        if len({(array.shape, array.dtype) for array in arrays}) == 1 and arrays[0].ndim > 0:
            return _of_array(np.stack(arrays))
        if arrays[0].ndim == 1:
            return pa.array(items)
    try:
        return pa.array(items)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return _of_objects(items)


def _of_objects(items: Iterable[Any]) -> Any:
    pickled = pa.array([cloudpickle.dumps(item) for item in items], pa.binary())
    return pa.ExtensionArray.from_storage(PythonObjectType(), pickled)


def from_column(column: Any) -> Any:
    """An Arrow column as a numpy array, without a copy if possible. Lists and texts become an array of objects."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensors(column)
    if isinstance(kind, PythonObjectType):
        return objects(_loaded(column))
    return column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()


def _tensors(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        chunks = [chunk.to_numpy_ndarray() for chunk in column.chunks if len(chunk)]
        if not chunks:
            return np.empty((0, *column.type.shape), column.type.value_type.to_pandas_dtype())
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return column.to_numpy_ndarray()


def _loaded(column: Any) -> list[Any]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [pickle.loads(item) for chunk in chunks for item in chunk.storage.to_pylist()]


def objects(items: Sequence[Any]) -> Any:
    array: Any = np.empty(len(items), dtype=object)
    for number, item in enumerate(items):
        array[number] = item
    return array


def to_batch(table: pa.Table, batch_format: str | None) -> Any:
    """The table as ``batch_format`` names it: a dict of numpy arrays, a data frame, or the table."""
    if batch_format in ("default", "numpy"):
        return {name: from_column(table.column(name)) for name in table.column_names}
    if batch_format == "pandas":
        return to_pandas(table)
    return table


def check_format(caller: str, batch_format: str | None) -> None:
    if batch_format is not None and batch_format not in FORMATS:
        raise ValueError(f"{caller}(batch_format={batch_format!r}): use one of {', '.join(map(repr, FORMATS))}")


def to_pandas(table: pa.Table) -> Any:
    import pandas as pd

    special = [name for name in table.column_names if isinstance(table.schema.field(name).type, pa.BaseExtensionType)]
    frame = table.drop_columns(special).to_pandas()
    for name in special:
        frame[name] = pd.Series(list(from_column(table.column(name))), index=frame.index, dtype=object)
    return frame[table.column_names]


def to_table(batch: Any, told: str) -> pa.Table:
    """A batch from a user's function or script. Errors begin with ``told``."""
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, Mapping):
        columns = {str(name): to_column(values) for name, values in batch.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{told}: its columns have different lengths: {lengths}")
        return pa.table(columns)
    if _is_of_pandas(batch) and hasattr(batch, "columns"):
        return pa.table({str(name): _series(batch[name]) for name in batch.columns})
    raise TypeError(
        f"{told} is a {type(batch).__name__}: it must be a dict of arrays or lists, a pandas DataFrame, or a "
        "pyarrow Table"
    )


def _series(series: Any) -> Any:
    if series.dtype == object and len(series) and isinstance(series.iloc[0], np.ndarray):
        return _of_items(list(series))
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return _of_items(list(series))


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts of Python values. Values of a column of tensors are numpy arrays."""
    names = table.column_names
    columns = [_items(table.column(name)) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _items(column: Any) -> list[Any]:
    if isinstance(column.type, pa.BaseExtensionType):
        return list(from_column(column))
    items: list[Any] = column.to_pylist()
    return items


def from_rows(rows: Iterable[Any], told: str) -> pa.Table:
    rows = list(rows)
    names: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(f"{told} is a {type(row).__name__}: each row must be a dict, as in {{'column': value}}")
        names.update(dict.fromkeys(row))
    return pa.table({str(name): _of_items([row.get(name) for row in rows]) for name in names})


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table from several, whose columns may differ in nulls. Those without rows count if there are no others."""
    tables = [table for table in tables if table.num_columns] or list(tables[:1])
    tables = [table for table in tables if table.num_rows] or tables[-1:]
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.concat_tables(_alike(tables), promote_options="permissive")


def _alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with columns of objects instead of columns whose types Arrow cannot unify, such as tensors of two
    shapes."""
    made = list(tables)
    for name in {name: None for table in tables for name in table.column_names}:
        kinds = {table.schema.field(name).type for table in made if name in table.column_names}
        if any(isinstance(kind, pa.BaseExtensionType) for kind in kinds) and len(kinds) > 1:
            made = [_with_objects(table, name) if name in table.column_names else table for table in made]
        elif not _fit_together(kinds):
            types = " and ".join(sorted(map(str, kinds)))
            raise DataError(f"the column {name!r} has values of {types}. Give it one type, with map_batches.")
    return made


def _fit_together(kinds: Iterable[Any]) -> bool:
    try:
        pa.unify_schemas([pa.schema([("column", kind)]) for kind in kinds], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return False
    return True


def _with_objects(table: pa.Table, name: str) -> pa.Table:
    column = table.column(name)
    if isinstance(column.type, PythonObjectType):
        return table
    return table.set_column(table.column_names.index(name), name, _of_objects(_items(column)))
