"""CSV, JSON, text and images: a piece for each file, or for some images. How many rows a file of text has is not known
before it is read."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv

from holdfast.data.calls import Computation
from holdfast.data.columns import from_rows
from holdfast.data.data_context import DataContext
from holdfast.data.file_access import DataFile
from holdfast.data.json_lines import json_tables
from holdfast.data.parquet_source import unreadable
from holdfast.data.pieces import Chunk, between, span_text

IMAGES_PER_PIECE = 64
_COMPRESSIONS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4", "br": "brotli"}


@dataclass(frozen=True)
class FilePiece:
    """One file of rows. ``options`` are those of the reader."""

    file: DataFile
    include_path: bool
    options: dict[str, Any]

    rows: ClassVar[None] = None

    @property
    def nbytes(self) -> int:
        return self.file.size

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        return between(self._numbered(run), start, stop)

    def _numbered(self, run: Computation) -> Iterator[Chunk]:
        at = 0
        try:
            for table in self.tables(run.context):
                end = at + table.num_rows
                if self.include_path:
                    table = table.append_column("path", pa.repeat(self.file.shown, table.num_rows))
                yield Chunk(table, span_text(at, end, self.file.shown) if end > at else self.file.shown)
                at = end
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise unreadable(self.file, error) from error

    def tables(self, context: DataContext) -> Iterator[pa.Table]:
        raise NotImplementedError

    def opened(self, context: DataContext) -> Any:
        return self.opened_with_version(context)[0]

    def opened_with_version(self, context: DataContext) -> tuple[Any, Callable[[], str]]:
        source, version = self.file.opened(context, is_buffered=True)
        compression = _COMPRESSIONS.get(self.file.location.name.rpartition(".")[2])
        return (pa.CompressedInputStream(source, compression) if compression else source), version


class CsvFile(FilePiece):
    def tables(self, context: DataContext) -> Iterator[pa.Table]:
        read = self.options.get("read_options") or pa.csv.ReadOptions(block_size=context.target_chunk_bytes)
        if not self.file.size:
            return
        with (
            self.opened(context) as source,
            pa.csv.open_csv(source, **{**self.options, "read_options": read}) as reader,
        ):
            yield reader.schema.empty_table()  # a file may have no more than its head
            for batch in reader:
                yield pa.Table.from_batches([batch])


class JsonFile(FilePiece):
    def tables(self, context: DataContext) -> Iterator[pa.Table]:
        if not self.file.size:
            return
        told: list[Callable[[], str]] = []  # by the reader of each pass

        def start() -> Any:
            source, version = self.opened_with_version(context)
            told.append(version)
            return source

        def version() -> Any:
            found = told[-1]()
            return (self.file.location.identity, self.file.size, found) if found and not self.file.is_fresh else None

        yield from json_tables(start, context.target_chunk_bytes, self.options, self.file.shown, version)


class TextFile(FilePiece):
    def tables(self, context: DataContext) -> Iterator[pa.Table]:
        drop = self.options["drop_empty_lines"]
        with self.opened(context) as source, io.TextIOWrapper(source, self.options["encoding"], newline=None) as lines:
            held: list[str] = []
            size = 0
            yield pa.table({"text": pa.array(held, pa.string())})
            for line in lines:
                line = line.rstrip("\r\n")
                if line.strip() or not drop:
                    held.append(line)
                    size += len(line)
                if size >= context.target_chunk_bytes or len(held) >= context.target_chunk_rows:
                    yield pa.table({"text": held})
                    held, size = [], 0
            if held:
                yield pa.table({"text": held})


@dataclass(frozen=True)
class ImageFiles:
    """Some images, a row for each. Images of one size and mode make a column of tensors."""

    files: tuple[DataFile, ...]
    size: tuple[int, int] | None
    mode: str | None
    include_path: bool

    @property
    def rows(self) -> int:
        return len(self.files)

    @property
    def nbytes(self) -> int:
        return 8 * sum(file.size for file in self.files)

    def stream(self, run: Computation, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        for file in self.files[start:stop]:
            row: dict[str, Any] = {"image": self._array(file, run.context)}
            if self.include_path:
                row["path"] = file.shown
            yield Chunk(from_rows([row], "an image"), file.shown)

    def _array(self, file: DataFile, context: DataContext) -> Any:
        from PIL import Image

        try:
            with Image.open(io.BytesIO(file.read(context))) as image:
                made = image.convert(self.mode) if self.mode else image
                if self.size is not None:
                    made = made.resize((self.size[1], self.size[0]))
                return np.asarray(made)
        except (OSError, ValueError) as error:
            raise unreadable(file, error) from error
