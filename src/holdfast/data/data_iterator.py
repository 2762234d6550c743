"""``DataIterator``: a rank's part of a dataset, to be iterated once per epoch, with a state that can be saved.

The state counts the batches that the loop received, including the current one; prefetched batches do not count. All
ranks have the same state after the same number of batches, so one of them saves it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.data.batch_iterables import Repeatable, format_for
from holdfast.data.columns import ArrayCutter, TablePart, check_format, to_batch, to_rows
from holdfast.data.data_context import DataContext
from holdfast.data.execution import ahead_of_use
from holdfast.data.logical_plan import PlanNode, is_counted, total_rows
from holdfast.data.plan_digest import digest_of
from holdfast.data.row_cursor import RowCursor
from holdfast.data.row_flow import LocalShuffle
from holdfast.data.shard_steps import After, BatchRule, ShardWorld, can_be_split, steps_of

if TYPE_CHECKING:
    from holdfast.data.dataset import MaterializedDataset, Schema

_ROWS_AHEAD = 1024  # of iter_rows, made together


class DataIterator:
    """One part of a dataset. Each iteration is an epoch. After ``load_state_dict``, the first iteration is the rest of
    the saved epoch.
    """

    def __init__(
        self,
        plan: PlanNode,
        world: ShardWorld | None = None,
        context: DataContext | None = None,
        device: Callable[[], Any] | None = None,
    ) -> None:
        self._plan = plan
        self._world = world or ShardWorld()
        self._context = context
        self._device = device
        self._cursor: Callable[[], RowCursor] = RowCursor
        self._known: tuple[int | None] | None = None
        self._data = ""
        self._is_fresh = True  # whether the next iteration continues the cursor's epoch
        self._pinned: int | None = None

    def __repr__(self) -> str:
        return f"DataIterator({self._plan.text()}, rank {self._world.rank} of {self._world.size})"

    @property
    def epoch(self) -> int:
        """The current epoch. Between iterations, it is the epoch of the next one."""
        return self._cursor().epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. The iteration starts at the beginning of that epoch, unless the loaded
        state is of the same epoch or the loop is in it.
        """
        if epoch != self.epoch:
            self._cursor = lambda: RowCursor(epoch)
        self._is_fresh, self._pinned = True, None

    def pin_epoch(self, epoch: int) -> None:
        """Make each iteration a pass of its own over this whole epoch, until you pin or set another epoch or load a
        state.

        This is for loops that know their epoch but start more iterations than they finish, as Keras does.
        """
        self._cursor, self._is_fresh, self._pinned = (lambda: RowCursor(epoch)), True, epoch

    def unpin_epoch(self) -> None:
        """Undo ``pin_epoch``: the next iteration is the epoch after the pinned one, and so on."""
        if self._pinned is not None:
            self.set_epoch(self._pinned + 1)

    def _of_pass(self) -> DataIterator:
        """The iterator whose cursor the next pass moves."""
        if self._pinned is None:
            return self
        own, epoch = copy(self), self._pinned
        own._cursor, own._is_fresh = (lambda: RowCursor(epoch)), True
        return own

    def state_dict(self) -> dict[str, Any]:
        """Return the position as plain values. They are the same on all ranks that have taken the same number of
        batches.
        """
        cursor = self._cursor()
        return cursor.as_dict(self._plan.text(), self._rows(), self._digest())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume after the consumed rows, with any number of ranks."""
        cursor = RowCursor.from_dict(state, self._plan.text(), self._rows(), self._digest)
        self._cursor, self._is_fresh, self._pinned = (lambda: cursor), True, None

    def _digest(self) -> str:
        """Of the plan and its sources. A plan never changes."""
        if not self._data:
            self._data = digest_of(self._plan)
        return self._data

    def _rows(self) -> int | None:
        """The number of rows in an epoch, if it is known. Computed once: a sorted plan must be computed to answer
        this."""
        if self._known is None:
            pieces = self._pieces(0)
            self._known = (total_rows(pieces) if is_counted(pieces) else None,)
        return self._known[0]

    # Iterators

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Yield batches: dicts of numpy arrays, or what ``batch_format`` names ("pandas", "pyarrow").

        Each row is in one batch of one rank. All ranks get the same number of batches; the last one or two may be
        smaller. ``local_shuffle_buffer_size`` shuffles windows of that many rows, determined by ``local_shuffle_seed``
        and the epoch.
        """
        check_format("iter_batches", batch_format)
        shuffle = _local_shuffle(local_shuffle_buffer_size, local_shuffle_seed)
        rule = BatchRule(self._batch_size(batch_size), drop_last)
        ahead = 0 if batch_format != "pandas" and _is_light(shuffle, prefetch_batches) else prefetch_batches
        return Repeatable(lambda: self._of_pass()._batches(rule, shuffle, _formatted(batch_format), ahead), self)

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Yield rows as dicts. The number of rows may differ by one between ranks."""

        def rows() -> Iterator[dict[str, Any]]:
            size = _ROWS_AHEAD if can_be_split(self._pieces(0), self._world) else 1
            own = self._of_pass()
            made = own._epoch_of(BatchRule(size, even=False), None, lambda part: to_rows(part.sliced()), 1)
            for some, after in made:
                for number, row in enumerate(some, 1):
                    own._cursor = partial(after, number if number < len(some) else None)
                    yield row

        return Repeatable(rows, self)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Yield dicts of tensors, cast to ``dtypes``, or what ``collate_fn`` makes of a dict of numpy arrays. They are
        on ``device``; "auto" is the worker's device.
        """
        from holdfast.data.tensors import tensor_maker, to_device

        tensors = tensor_maker(dtypes, collate_fn, pin_memory)
        shuffle = _local_shuffle(local_shuffle_buffer_size, local_shuffle_seed)
        rule = BatchRule(self._batch_size(batch_size), drop_last)
        is_light = collate_fn is None and not pin_memory and _is_light(shuffle, prefetch_batches)

        def batches() -> Iterator[Any]:
            target = (self._device() if self._device is not None else None) if device == "auto" else device
            arrays = _formatted(format_for(collate_fn))
            made = self._of_pass()._batches(
                rule, shuffle, lambda part: tensors(_writable(arrays(part))), 0 if is_light else prefetch_batches
            )
            for batch in made:
                yield batch if target is None else to_device(batch, target, non_blocking=pin_memory)

        return Repeatable(batches, self)

    def iter_tf_batches(self, *, dtypes: Any = None, **options: Any) -> Iterable[Any]:
        """Yield dicts of TensorFlow tensors, cast to ``dtypes``."""
        from holdfast.data.tensorflow_batches import tf_columns

        batches = self.iter_batches(**options, batch_format="numpy")
        return Repeatable(lambda: (tf_columns(batch, dtypes) for batch in batches), self)

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        """Return a ``tf.data.Dataset`` of (features, labels). The other arguments are those of Ray Data."""
        from holdfast.data.tensorflow_batches import tf_dataset

        return tf_dataset(self, feature_columns, label_columns, **options)

    def materialize(self) -> MaterializedDataset:
        """Load this part into memory. This does not count as an epoch."""
        from holdfast.data.dataset import MaterializedDataset
        from holdfast.data.logical_plan import InMemory

        steps = steps_of(self._pieces(0), RowCursor(), self._world, BatchRule(65_536), self._context_here())
        tables = [part.sliced() for part, _ in steps]
        recipe = f"{digest_of(self._plan)} {self._world}"
        return MaterializedDataset(InMemory(tuple(tables), self._plan.text(), recipe))

    def schema(self) -> Schema:
        from holdfast.data.dataset import Dataset

        made = Dataset(self._plan)
        made._context = self._context
        return made.schema()

    def stats(self) -> str:
        return f"{self!r}, in epoch {self.epoch}"

    def get_context(self) -> DataContext:
        return self._context_here()

    # How

    def _context_here(self) -> DataContext:
        return self._context or DataContext.get_current()

    def _pieces(self, epoch: int) -> Any:
        return self._plan.pieces(epoch, self._context_here())

    def _batch_size(self, batch_size: Any) -> int:
        if batch_size is None:
            return self._context_here().target_chunk_rows
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"iter_batches(batch_size={batch_size!r}): must be at least 1, or None for large batches")
        return batch_size

    def _batches(
        self, rule: BatchRule, shuffle: LocalShuffle | None, make: Callable[[TablePart], Any], ahead: int
    ) -> Iterator[Any]:
        for batch, after in self._epoch_of(rule, shuffle, make, ahead):
            self._cursor = partial(after, None)
            yield batch

    def _epoch_of(
        self, rule: BatchRule, shuffle: LocalShuffle | None, make: Callable[[TablePart], Any], ahead: int
    ) -> Generator[tuple[Any, After], None, None]:
        """One pass, or the rest of one. Prefetching runs in a thread; the cursor moves when the loop takes a batch."""
        cursor = self._begun(shuffle)
        self._cursor = lambda: cursor
        self._is_fresh = False

        def steps() -> Iterator[Any]:
            pieces = self._pieces(cursor.epoch)
            found = steps_of(pieces, cursor, self._world, rule, self._context_here())
            with closing(found):
                for part, after in found:
                    yield make(part), after

        with closing(ahead_of_use(steps, ahead)) as given:
            yield from given
        self._cursor, self._is_fresh = (lambda: RowCursor(cursor.epoch + 1)), True

    def _begun(self, shuffle: LocalShuffle | None) -> RowCursor:
        cursor = self._cursor()
        if not self._is_fresh:  # the loop left the epoch before its end
            return RowCursor(cursor.epoch + 1, shuffle=shuffle)
        if cursor.left is None:
            return replace(cursor, shuffle=shuffle)
        if cursor.shuffle != shuffle:
            raise ValueError(
                f"The loaded state was saved with local_shuffle_buffer_size and local_shuffle_seed "
                f"{_told(cursor.shuffle)}. They are now {_told(shuffle)}, which gives another order of the rows. Pass "
                "the values that the state was saved with."
            )
        return cursor


def _local_shuffle(size: Any, seed: int | None) -> LocalShuffle | None:
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"iter_batches(local_shuffle_buffer_size={size!r}): must be at least 1, or None")
    return LocalShuffle(size, seed or 0)


def _told(shuffle: LocalShuffle | None) -> str:
    return "not set" if shuffle is None else f"{shuffle.window} and {shuffle.seed}"


def _formatted(batch_format: str | None) -> Callable[[TablePart], Any]:
    """For one pass."""
    if batch_format in ("default", "numpy"):
        return ArrayCutter()
    return lambda part: to_batch(part.sliced(), batch_format)


def _is_light(shuffle: LocalShuffle | None, ahead: int) -> bool:
    """Whether the loop's own thread cuts the batches. The chunks that they are cut from are computed ahead in any case,
    and to hand each small batch from thread to thread costs more than to cut it."""
    return shuffle is None and ahead <= 1


def _writable(batch: Any) -> Any:
    """Torch has no read-only tensors, so memory that belongs to Arrow is copied."""
    if isinstance(batch, dict):
        return {name: _writable(array) for name, array in batch.items()}
    return batch.copy() if isinstance(batch, np.ndarray) and not batch.flags.writeable else batch
