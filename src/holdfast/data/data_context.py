"""``DataContext``: the settings for reading and computing datasets in this process, under Ray's names if Ray has them.

Ray has some two hundred settings of a scheduler that does not exist here. Other settings that a script makes are kept,
and have no effect.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

_UNKNOWN_ROWS = 256  # in one go, of rows whose size is not known


@dataclass
class ExecutionResources:
    """Resource limits of Ray Data. ``cpu`` limits threads; the other values have no effect."""

    cpu: float | None = None
    gpu: float | None = None
    object_store_memory: float | None = None
    memory: float | None = None


@dataclass
class ExecutionOptions:
    """Execution options of Ray Data. ``resource_limits.cpu`` is the number of threads that read and compute. The order
    is always kept, and the locality options have no effect.
    """

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    exclude_resources: ExecutionResources = field(default_factory=ExecutionResources)
    locality_with_output: Any = False
    preserve_order: bool = True
    actor_locality_enabled: bool = True
    verbose_progress: bool | None = None


@dataclass
class DataContext:
    """Settings for reading and computing datasets.

    ``target_chunk_bytes`` is how much is read and computed in one go. ``read_ahead`` is how many chunks of a file, and
    how many files, are read before they are needed. ``shuffle_window_bytes`` is how much ``random_shuffle`` holds in
    memory; a smaller dataset is shuffled as a whole.
    """

    _current: ClassVar[DataContext | None] = None

    target_chunk_bytes: int = 16 << 20
    target_chunk_rows: int = 65_536
    read_ahead: int = 2
    shuffle_window_bytes: int = 256 << 20
    threads: int = field(default_factory=lambda: min(8, os.cpu_count() or 1))
    storage_patience_s: float = 60.0
    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    enable_progress_bars: bool = False

    @staticmethod
    def get_current() -> DataContext:
        if DataContext._current is None:
            DataContext._current = DataContext()
        return DataContext._current

    @staticmethod
    def _set_current(context: DataContext) -> None:
        DataContext._current = context

    def copy(self) -> DataContext:
        return copy.deepcopy(self)

    def chunk_rows(self, nbytes: int, rows: int) -> int:
        """Return how many rows to read and compute in one go, for a dataset with this many rows and bytes."""
        return rows_per_chunk(nbytes, rows, self.target_chunk_bytes, self.target_chunk_rows)

    def chunk_rows_of(self, row_bytes: int) -> int:
        """Return how many rows to read and compute in one go, for rows of this size; 0 if the size is not known."""
        fitting = self.target_chunk_bytes // row_bytes if row_bytes else _UNKNOWN_ROWS
        return max(1, min(self.target_chunk_rows, fitting))

    @property
    def max_threads(self) -> int:
        limit = self.execution_options.resource_limits.cpu
        return max(1, self.threads if limit is None else min(self.threads, int(limit)))


def rows_per_chunk(nbytes: int, rows: int, target: int, most: int) -> int:
    """How many rows are about ``target`` bytes, so that the chunks of ``rows`` rows are of one size."""
    chunks = max(1, round(nbytes / target), -(-rows // most))
    return max(1, -(-rows // chunks))
