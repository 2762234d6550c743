"""``Dataset``: a plan, with Ray's methods to add to it. Nothing is read or computed until rows are requested.
``left_out`` lists the methods of Ray that are missing here, with what to use instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.data.columns import check_format, joined
from holdfast.data.consumption import Consumption
from holdfast.data.data_context import DataContext
from holdfast.data.filter_texts import expression_of
from holdfast.data.left_out import missing
from holdfast.data.logical_plan import (
    BlockOrder,
    Chain,
    CountedBlocks,
    InMemory,
    PlanNode,
    Repartition,
    RowRange,
    Shuffle,
    Sorted,
    Zip,
    block_rows,
    is_counted,
    total_rows,
    with_op,
)
from holdfast.data.plan_digest import digest_of
from holdfast.data.row_ops import (
    AddColumn,
    ChangeColumns,
    FilterExpression,
    FilterRows,
    FlatMap,
    MapBatches,
    MapRows,
    SampleRows,
    check_batches,
    user_call,
)

if TYPE_CHECKING:
    from holdfast.data.data_iterator import DataIterator

_CALL = ("concurrency", "compute", "fn_args", "fn_kwargs", "fn_constructor_args", "fn_constructor_kwargs")


class Schema:
    """The names and Arrow types of the columns. ``base_schema`` is the pyarrow schema."""

    def __init__(self, base_schema: pa.Schema) -> None:
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        return list(self.base_schema.names)

    @property
    def types(self) -> list[Any]:
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and bool(self.base_schema.equals(other.base_schema))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        columns = [f"{name}: {kind}" for name, kind in zip(self.names, self.types, strict=True)]
        return f"Schema({', '.join(columns)})"


class Dataset(Consumption):
    """Rows that are computed when you iterate over them. A dataset is immutable: each method returns a new one."""

    def __init__(self, plan: PlanNode, input_files: tuple[str, ...] = ()) -> None:
        self._plan = plan
        self._files = input_files
        self._context: DataContext | None = None
        self.name: str | None = None

    @property
    def context(self) -> DataContext:
        """The settings of this dataset, which you may change. They start as a copy of the process's settings."""
        if self._context is None:
            self._context = DataContext.get_current().copy()
        return self._context

    def _with(self, plan: PlanNode) -> Dataset:
        made = Dataset(plan, self._files)
        made._context = self._context
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._plan.text()})"

    def __getattr__(self, name: str) -> Any:
        raise missing("Dataset", name)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("iterate over dataset.iter_batches() or dataset.iter_rows()")

    def __len__(self) -> int:
        raise TypeError("a Dataset has no len(); use dataset.count()")

    # Rows

    def map(self, fn: Any, **options: Any) -> Dataset:
        """Apply ``fn`` to each row. It takes a dict and returns one."""
        return self._with(with_op(self._plan, MapRows(user_call("map", fn, **_of_call(options)))))

    def map_batches(
        self,
        fn: Any,
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        udf_modifying_row_count: bool | None = None,
        **options: Any,
    ) -> Dataset:
        """Apply ``fn`` to each batch. A batch is a dict of numpy arrays, or what ``batch_format`` names. ``fn`` returns
        a batch or yields several.

        ``fn`` must return as many rows as it got. If it does not, set ``udf_modifying_row_count=True``: a worker then
        has to compute the rows of all workers to find its own. A batch never crosses the end of a block. With
        ``batch_size=None``, a batch is what is read in one go. Each pass over the data creates ``concurrency``
        instances of a class. A function is called from several threads, at most ``concurrency`` of them.
        """
        size = None if batch_size == "auto" else batch_size
        check_batches("map_batches", size, batch_format)
        user = user_call("map_batches", fn, **_of_call(options))
        op = MapBatches(user, size, batch_format, udf_modifying_row_count, not zero_copy_batch)  # type: ignore[arg-type]
        return self._with(with_op(self._plan, op))

    def flat_map(self, fn: Any, **options: Any) -> Dataset:
        """Apply ``fn`` to each row. It returns a list of rows."""
        return self._with(with_op(self._plan, FlatMap(user_call("flat_map", fn, **_of_call(options)))))

    def filter(self, fn: Any = None, expr: Any = None, **options: Any) -> Dataset:
        """Keep the rows for which ``fn`` returns True, or for which an expression holds. An expression is a string such
        as ``"x > 1 and kind == 'a'"``, or a ``pyarrow.compute`` expression.
        """
        if (fn is None) == (expr is None):
            raise ValueError("filter(): pass either fn or expr")
        if fn is not None:
            return self._with(with_op(self._plan, FilterRows(user_call("filter", fn, **_of_call(options)))))
        if isinstance(expr, str):
            expr = expression_of(expr)
        if not isinstance(expr, pa.compute.Expression):
            raise TypeError(
                f'filter(expr={expr!r}): pass a text, as in "x > 1", or an expression of pyarrow, as in '
                "pyarrow.compute.field('x') > 1; or a function that gets a row, as in filter(lambda row: row['x'] > 1)"
            )
        return self._with(with_op(self._plan, FilterExpression(expr)))

    def random_sample(self, fraction: float, *, seed: int | None = None) -> Dataset:
        """Keep each row with this probability."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"random_sample(fraction={fraction!r}): must be between 0 and 1")
        return self._with(with_op(self._plan, SampleRows(fraction, seed or 0)))

    # Columns

    def select_columns(self, cols: str | Sequence[str], **options: Any) -> Dataset:
        """Keep these columns."""
        names = _unique("select_columns", cols)
        return self._columns("select_columns", lambda table: table.select(names))

    def drop_columns(self, cols: str | Sequence[str], **options: Any) -> Dataset:
        """Remove these columns."""
        names = _unique("drop_columns", cols)
        return self._columns("drop_columns", lambda table: table.drop_columns(names))

    def rename_columns(self, names: dict[str, str] | Sequence[str], **options: Any) -> Dataset:
        """Rename columns."""
        given = names if isinstance(names, dict) else list(names)
        if not given:
            raise ValueError(f"rename_columns({names!r}): pass new names, as in {{'old': 'new'}}")
        _unique("rename_columns", list(given.values()) if isinstance(given, dict) else given)
        return self._columns("rename_columns", lambda table: table.rename_columns(given))

    def add_column(self, col: str, fn: Any, *, batch_format: str = "pandas", **options: Any) -> Dataset:
        """Add a column. ``fn`` takes a batch and returns the values of the new column."""
        check_format("add_column", batch_format)
        user = user_call("add_column", fn, **_of_call(options))
        return self._with(with_op(self._plan, AddColumn(user, col, batch_format)))

    def _columns(self, name: str, change: Any) -> Dataset:
        return self._with(with_op(self._plan, ChangeColumns(name, change)))

    # Order

    def random_shuffle(self, *, seed: int | None = None, **options: Any) -> Dataset:
        """Shuffle the rows, in a different order for each epoch. ``seed`` (0 by default) and the epoch determine the
        order.

        A dataset that fits into ``DataContext.shuffle_window_bytes`` is shuffled as a whole. For a larger one, the
        order of the blocks is shuffled first, then the rows of as many blocks as fit.
        """
        window = self._settings.shuffle_window_bytes
        return self._with(Shuffle(self._plan, _seed(seed), window))

    def randomize_block_order(self, *, seed: int | None = None) -> Dataset:
        """Shuffle the order of the blocks. The order of the rows in each block does not change."""
        return self._with(BlockOrder(self._plan, _seed(seed)))

    def sort(
        self, key: str | Sequence[str], descending: bool | Sequence[bool] = False, boundaries: Any = None
    ) -> Dataset:
        """Sort the rows. All of them must fit into memory."""
        keys = [key] if isinstance(key, str) else list(key)
        orders = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(orders) != len(keys):
            raise ValueError(f"sort(key={key!r}, descending={descending!r}): give as many as there are keys")
        pairs = [(name, "descending" if down else "ascending") for name, down in zip(keys, orders, strict=True)]
        return self._with(Sorted(self._plan, tuple(pairs)))

    # Parts

    def limit(self, limit: int) -> Dataset:
        """Keep the first ``limit`` rows."""
        if limit < 0:
            raise ValueError(f"limit({limit}): must be 0 or more")
        return self._with(RowRange(self._plan, 0, limit))

    def union(self, *other: Dataset) -> Dataset:
        """Append the rows of other datasets."""
        return self._with(Chain((self._plan, *(each._plan for each in other))))

    def zip(self, *other: Dataset) -> Dataset:
        """Join the columns of datasets side by side. All must have the same number of rows."""
        plan = self._plan
        for each in other:
            plan = Zip(plan, each._plan)
        return self._with(plan)

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Any = None,
        sort: bool = False,
    ) -> Dataset:
        """Split the rows into ``num_blocks`` blocks, or into blocks of ``target_num_rows_per_block`` rows. The order
        does not change unless ``shuffle`` is True.
        """
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ValueError("repartition(): pass either num_blocks or target_num_rows_per_block")
        if keys is not None or sort:
            raise missing("Dataset.repartition", "keys" if keys is not None else "sort")
        for name, value in (("num_blocks", num_blocks), ("target_num_rows_per_block", target_num_rows_per_block)):
            if value is not None and value < 1:
                raise ValueError(f"repartition({name}={value}): must be at least 1")
        base = self.random_shuffle() if shuffle else self
        return self._with(Repartition(base._plan, num_blocks, target_num_rows_per_block))

    def train_test_split(
        self, test_size: int | float, *, shuffle: bool = False, seed: int | None = None, stratify: str | None = None
    ) -> tuple[Dataset, Dataset]:
        """Split off the last rows for testing. ``test_size`` is a fraction or a number of rows."""
        if stratify is not None:
            raise missing("Dataset.train_test_split", "stratify")
        base = self.random_shuffle(seed=seed).materialize() if shuffle else self
        rows = base.count()
        if isinstance(test_size, float):
            if not 0 < test_size < 1:
                raise ValueError(f"train_test_split(test_size={test_size}): a share must be between 0 and 1")
            size = rows - int(rows * (1 - test_size))
        else:
            size = test_size
            if not 0 < size < rows:
                raise ValueError(f"train_test_split(test_size={size}): the dataset has {rows} rows")
        train, test = base.split_at_indices([rows - size])
        return train, test

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[Dataset]:
        """Split the rows, in order, into ``n`` datasets. With ``equal``, all have as many rows; the rest is dropped."""
        rows = self.count()
        rows -= rows % n if equal else 0
        edges = [number * rows // n for number in range(n + 1)]
        return [self._range(first, last) for first, last in pairwise(edges)]

    def split_at_indices(self, indices: Sequence[int]) -> list[Dataset]:
        """Split the rows before each of these row numbers."""
        edges = [0, *indices]
        if not indices or sorted(edges) != edges:
            raise ValueError(f"split_at_indices({list(indices)}): pass at least one; they must be ascending, from 0 on")
        return [self._range(first, last) for first, last in zip(edges, [*indices, None], strict=True)]

    def split_proportionately(self, proportions: Sequence[float]) -> list[Dataset]:
        """Split the rows by these fractions. The rest becomes one more dataset."""
        if not proportions or sum(proportions) >= 1 or min(proportions) <= 0:
            raise ValueError(f"split_proportionately({list(proportions)}): must be above 0, and below 1 together")
        rows = self.count()
        edges = [int(rows * sum(proportions[: number + 1])) for number in range(len(proportions))]
        for number in range(len(edges) - 2, -1, -1):  # no part is empty, as with Ray
            edges[number] = min(edges[number], edges[number + 1] - 1)
        if edges[0] <= 0:
            raise ValueError(f"split_proportionately({list(proportions)}): a part of {rows} rows would be empty")
        return self.split_at_indices(edges)

    def _range(self, first: int, last: int | None) -> Dataset:
        return self._with(RowRange(self._plan, first, last))

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DataIterator]:
        """Return an iterator for each of ``n`` ranks. Each row goes to one of them; with ``equal``, all get as many."""
        from holdfast.data.data_iterator import DataIterator
        from holdfast.data.shard_steps import ShardWorld

        if n < 1:
            raise ValueError(f"streaming_split({n}): must be at least 1")
        return [DataIterator(self._plan, ShardWorld(rank, n, equal), self._context) for rank in range(n)]

    # In memory

    def materialize(self) -> MaterializedDataset:
        """Compute the dataset now and keep it in memory. Its rows can then be found by position, whatever produced
        them.
        """
        tables = self._blocks()
        if any(table.schema != tables[0].schema for table in tables):
            tables = [joined(tables)]  # with one type for each column
        made = MaterializedDataset(
            InMemory(tuple(tables), f"materialized {self._plan.text()}", digest_of(self._plan)), self._files
        )
        made._context = self._context
        return made

    def counted(self) -> Dataset:
        """Compute all rows once, now, to learn how many each block has.

        This method is not in Ray Data. After ``filter``, ``flat_map``, CSV, JSON and text, a worker has to compute all
        rows to find its own. Of a counted dataset it computes only the blocks that contain its rows. After
        ``random_shuffle`` these may be all blocks of a window. Call it before ``random_shuffle`` and
        ``randomize_block_order``.
        """
        pieces = self._pieces()
        if is_counted(pieces):
            return self
        if pieces != self._plan.pieces(1, self._settings):
            raise ValueError("counted(): the blocks differ from epoch to epoch; call it before the dataset is shuffled")
        return self._with(CountedBlocks(self._plan, block_rows(pieces, self._settings)))

    def copy(self, *_: Any) -> Dataset:
        return self._with(self._plan)

    def num_blocks(self) -> int:
        return len(self._pieces())

    def known_rows(self) -> int | None:
        """The number of rows, or None if it is not known without computing them."""
        pieces = self._pieces()
        return total_rows(pieces) if is_counted(pieces) else None

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, _known: Any) -> Dataset:
        return self  # it is a value: nothing changes a plan


class MaterializedDataset(Dataset):
    """A dataset whose rows are in memory."""


def _of_call(options: dict[str, Any]) -> dict[str, Any]:
    """The options about the call. Options that tell Ray where to run it have no effect here."""
    return {name: value for name, value in options.items() if name in _CALL}


def _unique(caller: str, cols: Any) -> list[str]:
    names = [cols] if isinstance(cols, str) else list(cols)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{caller}({cols!r}): pass names of columns")
    if len(set(names)) < len(names):
        raise ValueError(f"{caller}({cols!r}): pass each name only once")
    return names


def _seed(seed: Any) -> int:
    if seed is None:
        return 0
    number = getattr(seed, "seed", seed)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"seed={seed!r}: pass a whole number")
    return number
