"""JSON files: an object in each line, read in blocks of lines with bounded memory; or one list, which is read whole.

All blocks of a file have the same columns. If a file has several blocks, a first pass over it finds the columns and
their types, and keeps nothing else; the next passes in this process over the same version of the file know them.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.json

from holdfast.data.columns import from_rows
from holdfast.data.object_reader import changed
from holdfast.errors import DataError

_KEPT = 4096  # files whose columns are known: those of an epoch, or it reads each of them twice
_schemas: OrderedDict[Any, pa.Schema] = OrderedDict()
_lock = threading.Lock()


def json_tables(
    start: Callable[[], Any], block_bytes: int, options: dict[str, Any], shown: str, version: Callable[[], Any]
) -> Iterator[pa.Table]:
    """``start`` opens the file. Columns are remembered by what ``version`` gives when some of it has been read, unless
    that is None."""
    with closing(_blocks(start, block_bytes)) as blocks:
        first = next(blocks, b"")
        if first.lstrip()[:1] == b"[":
            yield from_rows(_items(b"".join([first, *blocks])), f"{shown}: an item")
            return
        given = options.get("parse_options")
        if given is not None and given.newlines_in_values:  # lines are no objects
            yield _parsed(b"".join([first, *blocks]), options)
            return
        second = next(blocks, None)
        if second is None or (given is not None and given.explicit_schema is not None):
            for block in _chained(first, second, blocks):
                yield _parsed(block, options)
            return
        tables = (_parsed(each, options) for each in _chained(first, second, blocks))
        schema = _known(shown, version(), tables)
    with closing(_blocks(start, block_bytes)) as blocks:
        for block in blocks:
            table = _parsed(block, {**options, "parse_options": pa.json.ParseOptions(explicit_schema=schema)})
            if table.column_names != schema.names:
                raise changed(shown, f"it has the columns {', '.join(table.column_names)} now")
            yield table


def _blocks(start: Callable[[], Any], block_bytes: int) -> Generator[bytes, None, None]:
    """Whole lines, about so many bytes; empty ones are left out."""
    with start() as source:
        held: list[bytes] = []
        while data := source.read(block_bytes):
            end = data.rfind(b"\n") + 1
            if not end:
                held.append(data)
                continue
            block = b"".join([*held, data[:end]])
            held = [data[end:]] if end < len(data) else []
            if not block.isspace():
                yield block
        rest = b"".join(held)
        if rest and not rest.isspace():
            yield rest


def _chained(first: bytes, second: bytes | None, others: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    if second is not None:
        yield second
    yield from others


def _items(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise pa.ArrowInvalid(f"it is not a list in JSON: {error}") from error


def _parsed(block: bytes, options: dict[str, Any]) -> pa.Table:
    """In one go: an object must not cross the end of a block of Arrow's."""
    read = options.get("read_options") or pa.json.ReadOptions(block_size=max(1 << 20, len(block)))
    return pa.json.read_json(pa.BufferReader(block), **{**options, "read_options": read})


def _known(shown: str, version: Any, tables: Iterator[pa.Table]) -> pa.Schema:
    with _lock:
        found = _schemas.get(version)
        if found is not None:
            _schemas.move_to_end(version)
            return found
    schema = pa.schema([])
    for table in tables:
        schema = _unified(schema, table.schema, shown)
    if version is not None:
        with _lock:
            _schemas[version] = schema
            while len(_schemas) > _KEPT:
                _schemas.popitem(last=False)
    return schema


def _unified(known: pa.Schema, more: pa.Schema, shown: str) -> pa.Schema:
    """As Arrow decides it for a file that it reads whole: what looks like times is text, if another value is text."""
    for name in {*known.names} & {*more.names}:
        one, other = known.field(name).type, more.field(name).type
        if {pa.types.is_string(one), pa.types.is_string(other)} == {True, False} and any(
            pa.types.is_temporal(kind) for kind in (one, other)
        ):
            known = known.set(known.get_field_index(name), pa.field(name, pa.string()))
            more = more.set(more.get_field_index(name), pa.field(name, pa.string()))
    try:
        return pa.unify_schemas([known, more], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise DataError(
            f"{shown}: a column has values of several types: {error}. Give it one type in the files, or pass "
            "parse_options=pyarrow.json.ParseOptions(explicit_schema=...) to read_json."
        ) from error
