"""The common part of all ways to iterate over batches, without pyarrow: loops that can be repeated, and batch
formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_FORMATS = {"ArrowBatchCollateFn": "pyarrow", "PandasBatchCollateFn": "pandas"}  # what these of Ray's are given


class Repeatable:
    """An iterable that starts over each time, so one that was created before the first epoch serves all epochs.
    ``shard``: the ``DataIterator`` that counts its epochs and has their state, if there is one."""

    def __init__(self, start: Callable[[], Iterator[Any]], shard: Any = None) -> None:
        self._start = start
        self.shard = shard

    def __iter__(self) -> Iterator[Any]:
        return self._start()


def format_for(collate_fn: Any) -> str:
    """The input format of a ``collate_fn``: Ray's classes name it; a function gets numpy."""
    names = [kind.__name__ for kind in type(collate_fn).__mro__]
    return next((batch_format for name, batch_format in _FORMATS.items() if name in names), "numpy")
