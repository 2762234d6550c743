"""Datasets as files, a few large ones, numbered in the order of the rows. A file appears when it is complete."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from holdfast.data.columns import PythonObjectType, joined, to_rows
from holdfast.data.file_access import write
from holdfast.data.pieces import Chunk
from holdfast.store.location import Location

_FILE_BYTES = 128 << 20
_OF_RAY = {
    *("try_create_dir", "arrow_open_stream_args", "filename_provider", "ray_remote_args", "concurrency", "catalog"),
    *("arrow_parquet_args_fn", "arrow_csv_args_fn", "pandas_json_args_fn", "min_bytes_per_file", "max_rows_per_file"),
}


def write_files(chunks: Iterator[Chunk], kind: str, path: Any, filesystem: Any, options: dict[str, Any]) -> None:
    location = Location.parse(f"write_{kind}(path", path, filesystem)
    mode = str(options.pop("mode", "append")).rpartition(".")[2].lower()
    if mode not in ("append", "savemode.append"):
        raise ValueError(f"write_{kind}(mode={mode!r}): only append is supported. Choose an empty directory.")
    rows = options.pop("min_rows_per_file", None) or options.pop("num_rows_per_file", None)
    options = {name: value for name, value in options.items() if name not in _OF_RAY}
    stem = os.urandom(6).hex()
    for number, table in enumerate(_files(chunks, rows)):
        write(location, f"{stem}_{number:06d}.{kind}", _encoded(table, kind, options))


def _files(chunks: Iterator[Chunk], rows: int | None) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    count = size = 0
    for chunk in chunks:
        held.append(chunk.table)
        count += chunk.table.num_rows
        size += chunk.table.nbytes
        if rows is None and size >= _FILE_BYTES:
            yield joined(held)
            held, count, size = [], 0, 0
        while rows is not None and count >= rows:
            table = joined(held)
            yield table.slice(0, rows)
            held, count = [table.slice(rows)], count - rows
    if count:
        yield joined(held)


def _encoded(table: pa.Table, kind: str, options: dict[str, Any]) -> memoryview:
    pickled = [field.name for field in table.schema if isinstance(field.type, PythonObjectType)]
    if pickled:
        raise TypeError(
            f"write_{kind}: the column {pickled[0]!r} has Python objects, which are not written to files. Turn them "
            "into numbers, texts or arrays with map() first."
        )
    buffer = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, buffer, **options)
    elif kind == "csv":
        pa.csv.write_csv(table, buffer, **options)
    else:
        for row in to_rows(table):
            buffer.write(json.dumps(row, default=_plain).encode() + b"\n")
    return buffer.getbuffer()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
