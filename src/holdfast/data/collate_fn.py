"""Base classes for a ``collate_fn``, under Ray's names: each says what kind of batch it is given.

A plain function is given a dict of numpy arrays."""

from __future__ import annotations

from typing import Any


class CollateFn:
    """For ``iter_torch_batches(collate_fn=...)``: an object that makes tensors of a batch. Derive from one of those
    below."""

    def __call__(self, batch: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: add a method __call__(self, batch)")


class ArrowBatchCollateFn(CollateFn):
    """A collate function that takes a pyarrow table."""


class NumpyBatchCollateFn(CollateFn):
    """A collate function that takes a dict of numpy arrays."""


class PandasBatchCollateFn(CollateFn):
    """A collate function that takes a pandas data frame."""
