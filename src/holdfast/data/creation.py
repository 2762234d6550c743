"""Where datasets come from: objects in memory, and files. Names and arguments are Ray's.

Options that tell Ray where to run a task (``num_cpus``, ``ray_remote_args`` and so on) are taken and change nothing.
"""
# ruff: noqa: ARG001

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.data.columns import from_rows, to_column, to_table
from holdfast.data.data_context import DataContext
from holdfast.data.dataset import Dataset, MaterializedDataset
from holdfast.data.file_access import DataFile, listed
from holdfast.data.file_sources import IMAGES_PER_PIECE, CsvFile, FilePiece, ImageFiles, JsonFile, TextFile
from holdfast.data.filter_texts import expression_of
from holdfast.data.logical_plan import InMemory, Listed, PlanNode
from holdfast.data.parquet_source import row_groups, used_by
from holdfast.data.pieces import ComputedPiece, Piece

_range = builtins.range  # ours hides it
_RANGE_BLOCKS = 64
_JSON = (
    "json",
    "jsonl",
    "json.gz",
    "jsonl.gz",
    "json.br",
    "jsonl.br",
    "json.zst",
    "jsonl.zst",
    "json.lz4",
    "jsonl.lz4",
)
_IMAGES = ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif")


def from_items(
    items: Sequence[Any], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset with one row per item. A dict becomes a row; any other value becomes the column ``item``."""
    rows = [item if isinstance(item, dict) else {"item": item} for item in items]
    return _in_memory([from_rows(rows, "an item")], "from_items", _blocks(parallelism, override_num_blocks))


def range(
    n: int, *, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """Create a dataset of the numbers from 0 to ``n - 1``, in the column ``id``."""
    return _computed(_numbers, n, 8, "range", _blocks(parallelism, override_num_blocks))


def range_tensor(
    n: int,
    *,
    shape: tuple[int, ...] = (1,),
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Create a dataset of ``n`` tensors in the column ``data``. Each is filled with its row number."""
    make = partial(_full, tuple(shape))
    width = 8 * int(np.prod(shape))
    return _computed(make, n, width, "range_tensor", _blocks(parallelism, override_num_blocks))


def from_numpy(ndarrays: Any) -> MaterializedDataset:
    """Create a dataset from arrays, in the column ``data``. The first dimension is the rows."""
    arrays = [ndarrays] if isinstance(ndarrays, np.ndarray) else list(ndarrays)
    return _in_memory([pa.table({"data": to_column(array)}) for array in arrays], "from_numpy")


def from_pandas(dfs: Any, override_num_blocks: int | None = None) -> MaterializedDataset:
    """Create a dataset from a data frame, or from several. The index is dropped."""
    frames = list(dfs) if isinstance(dfs, (list, tuple)) else [dfs]
    tables = [to_table(frame, "from_pandas: what it got") for frame in frames]
    return _in_memory(tables, "from_pandas", override_num_blocks)


def from_arrow(tables: Any, *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """Create a dataset from pyarrow tables, or from bytes in Arrow's stream format. Each table is a block."""
    given = list(tables) if isinstance(tables, (list, tuple)) else [tables]
    read = [pa.ipc.open_stream(item).read_all() if isinstance(item, bytes) else item for item in given]
    return _in_memory([to_table(item, "from_arrow: what it got") for item in read], "from_arrow", override_num_blocks)


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """Create a dataset with one row for each item of a torch dataset, in the column ``item``.

    A map-style dataset is read where it is needed, and must return the same item for an index everywhere. Any other
    dataset is read now.
    """
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return _computed(partial(_items_of, dataset), len(dataset), 0, f"from_torch({type(dataset).__name__})", None)
    return from_items([{"item": item} for item in dataset])


def from_huggingface(
    dataset: Any, parallelism: int = -1, concurrency: int | None = None, override_num_blocks: int | None = None
) -> Dataset:
    """Create a dataset from a Hugging Face dataset: from its Arrow table, or from the rows of an iterable dataset."""
    if isinstance(dataset, dict):  # of splits
        raise TypeError(f"from_huggingface: pass one of its splits, as in dataset[{next(iter(dataset.keys()))!r}]")
    if hasattr(dataset, "with_format") and hasattr(dataset, "__len__"):
        table = dataset.with_format("arrow")[:]
        return _in_memory([table], "from_huggingface", _blocks(parallelism, override_num_blocks))
    return from_items(list(dataset))


def read_parquet(
    paths: Any,
    *,
    filesystem: Any = None,
    columns: Sequence[str] | None = None,
    parallelism: int = -1,
    shuffle: Any = None,
    include_paths: bool = False,
    file_extensions: Sequence[str] | None = ("parquet",),
    ignore_missing_paths: bool = False,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    filter: Any = None,
    **options: Any,
) -> Dataset:
    """Read Parquet files, directories and patterns, locally or from object stores. Each row group is a block.

    ``filter`` is an expression, as for ``Dataset.filter``. It may use columns that are not in ``columns``.
    """
    _check_options("read_parquet", options)
    files = listed("read_parquet", paths, filesystem, file_extensions, ignore_missing_paths)
    filter = expression_of(filter) if isinstance(filter, str) else filter
    read = columns if columns is None or filter is None else [*columns, *used_by(filter, files[0], columns)]
    pieces = row_groups(files, read, include_paths)
    made = _of_files("read_parquet", files, pieces, shuffle, _blocks(parallelism, override_num_blocks))
    if filter is None:
        return made
    made = made.filter(expr=filter)
    return made if columns is None else made.select_columns([*columns, *(["path"] if include_paths else [])])


def read_csv(paths: Any, *, file_extensions: Sequence[str] | None = None, **options: Any) -> Dataset:
    """Read CSV files. ``options`` are those of ``pyarrow.csv.open_csv``, and Ray's ``filesystem``, ``include_paths``,
    ``shuffle`` and ``ignore_missing_paths``.
    """
    return _rows_of(
        "read_csv", CsvFile, paths, file_extensions, options, ("read_options", "parse_options", "convert_options")
    )


def read_json(
    paths: Any, *, lines: bool = False, file_extensions: Sequence[str] | None = _JSON, **options: Any
) -> Dataset:
    """Read JSON files with one object per line, or with one list of objects. Lines are read in blocks; a list is read
    whole.
    """
    return _rows_of("read_json", JsonFile, paths, file_extensions, options, ("read_options", "parse_options"))


def read_text(
    paths: Any,
    *,
    encoding: str = "utf-8",
    drop_empty_lines: bool = True,
    file_extensions: Sequence[str] | None = None,
    **options: Any,
) -> Dataset:
    """Read text files. Each line is a row, in the column ``text``."""
    options |= {"encoding": encoding, "drop_empty_lines": drop_empty_lines}
    return _rows_of("read_text", TextFile, paths, file_extensions, options, ("encoding", "drop_empty_lines"))


def read_images(
    paths: Any,
    *,
    filesystem: Any = None,
    parallelism: int = -1,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    include_paths: bool = False,
    ignore_missing_paths: bool = False,
    shuffle: Any = None,
    file_extensions: Sequence[str] | None = _IMAGES,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    **options: Any,
) -> Dataset:
    """Read images. Each is a row, as an array in the column ``image``. ``size`` is (height, width). Requires Pillow."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise ImportError("read_images needs Pillow: run pip install pillow") from None
    _check_options("read_images", options)
    files = listed("read_images", paths, filesystem, file_extensions, ignore_missing_paths)
    groups = [files[at : at + IMAGES_PER_PIECE] for at in _range(0, len(files), IMAGES_PER_PIECE)]
    pieces = [ImageFiles(tuple(group), size, mode, include_paths) for group in groups]
    return _of_files("read_images", files, pieces, shuffle, _blocks(parallelism, override_num_blocks))


_HERE_TOO = {"filesystem", "include_paths", "shuffle", "ignore_missing_paths"}
_OF_RAYS_TASKS = {
    *("num_cpus", "num_gpus", "memory", "ray_remote_args", "label_selector", "fallback_strategy", "max_calls"),
    *("resources", "accelerator_type", "runtime_env", "arrow_open_stream_args", "arrow_open_file_args"),
    *("parallelism", "concurrency", "override_num_blocks"),
}


def _check_options(caller: str, options: dict[str, Any], known: Sequence[str] = ()) -> None:
    strange = sorted(set(options) - _OF_RAYS_TASKS - set(known))
    if strange:
        raise TypeError(f"{caller}({strange[0]}=...) is not supported. Use methods of the dataset, as in map_batches.")


def _rows_of(
    caller: str,
    kind: type[FilePiece],
    paths: Any,
    extensions: Sequence[str] | None,
    options: dict[str, Any],
    of_reader: Sequence[str],
) -> Dataset:
    _check_options(caller, options, (*of_reader, *_HERE_TOO))
    files = listed(caller, paths, options.get("filesystem"), extensions, bool(options.get("ignore_missing_paths")))
    given = {name: options[name] for name in of_reader if name in options}
    pieces = [kind(file, bool(options.get("include_paths")), given) for file in files]
    return _of_files(caller, files, pieces, options.get("shuffle"), options.get("override_num_blocks"))


def _of_files(
    caller: str, files: Sequence[DataFile], pieces: Sequence[Piece], shuffle: Any, blocks: int | None
) -> Dataset:
    total = sum(file.size for file in files)
    where = f"{caller}({len(files)} files, {total} bytes)"
    made = Dataset(Listed(tuple(pieces), where), tuple(file.shown for file in files))
    if shuffle is not None:
        if shuffle != "files" and not hasattr(shuffle, "seed"):
            raise ValueError(f'{caller}(shuffle={shuffle!r}): use "files" or FileShuffleConfig(seed=...)')
        made = made.randomize_block_order(seed=getattr(shuffle, "seed", None))
    return made.repartition(blocks) if blocks else made


def _in_memory(tables: Sequence[pa.Table], where: str, blocks: int | None = None) -> MaterializedDataset:
    made = [table.combine_chunks() for table in tables]
    if blocks and blocks > 1:
        whole = pa.concat_tables(made, promote_options="permissive")
        edges = [number * whole.num_rows // blocks for number in _range(blocks + 1)]
        made = [whole.slice(first, last - first) for first, last in pairwise(edges) if last > first]
    return MaterializedDataset(InMemory(tuple(made), where))


def _computed(make: Callable[[int, int], pa.Table], n: int, width: int, where: str, blocks: int | None) -> Dataset:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(f"{where}({n!r}): pass a number of rows, 0 or more")
    context = DataContext.get_current()
    count = blocks or max(1, min(_RANGE_BLOCKS, -(-n // context.chunk_rows_of(width))))
    edges = [number * n // count for number in _range(count + 1)]
    pieces = [ComputedPiece(make, first, last - first, width, where) for first, last in pairwise(edges) if last > first]
    node: PlanNode = Listed(tuple(pieces), f"{where}({n})")
    return Dataset(node)


def _blocks(parallelism: int, override: int | None) -> int | None:
    wanted = override if override is not None else parallelism
    return wanted if wanted > 0 else None


def _numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": np.arange(start, stop, dtype=np.int64)})


def _full(shape: tuple[int, ...], start: int, stop: int) -> pa.Table:
    numbers: Any = np.arange(start, stop, dtype=np.int64).reshape(-1, *(1 for _ in shape))
    return pa.table({"data": to_column(np.broadcast_to(numbers, (stop - start, *shape)))})


def _items_of(dataset: Any, start: int, stop: int) -> pa.Table:
    return from_rows([{"item": dataset[number]} for number in _range(start, stop)], "an item")
