"""Datasets that survive: lazy, streamed, bounded in memory, and with an exact cursor. Names are those of Ray Data.

Needs pyarrow: ``pip install 'holdfast[data]'``. Importing this package imports nothing; the first name does.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from holdfast.data.left_out import MODULE, missing

if TYPE_CHECKING:
    from holdfast.data.creation import (
        from_arrow,
        from_huggingface,
        from_items,
        from_numpy,
        from_pandas,
        from_torch,
        range,
        range_tensor,
        read_csv,
        read_images,
        read_json,
        read_parquet,
        read_text,
    )
    from holdfast.data.data_context import DataContext, ExecutionOptions, ExecutionResources
    from holdfast.data.data_iterator import DataIterator
    from holdfast.data.dataset import Dataset, MaterializedDataset, Schema
    from holdfast.data.pool_strategies import ActorPoolStrategy, FileShuffleConfig, RandomSeedConfig, TaskPoolStrategy
    from holdfast.data.pool_strategies import NodeIdStr as NodeIdStr

_HOMES = {
    "creation": (
        *("from_arrow", "from_huggingface", "from_items", "from_numpy", "from_pandas", "from_torch", "range"),
        *("range_tensor", "read_csv", "read_images", "read_json", "read_parquet", "read_text"),
    ),
    "data_context": ("DataContext", "ExecutionOptions", "ExecutionResources"),
    "data_iterator": ("DataIterator",),
    "dataset": ("Dataset", "MaterializedDataset", "Schema"),
    "pool_strategies": ("ActorPoolStrategy", "FileShuffleConfig", "NodeIdStr", "RandomSeedConfig", "TaskPoolStrategy"),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ActorPoolStrategy",
    "DataContext",
    "DataIterator",
    "Dataset",
    "ExecutionOptions",
    "ExecutionResources",
    "FileShuffleConfig",
    "MaterializedDataset",
    "RandomSeedConfig",
    "Schema",
    "TaskPoolStrategy",
    "from_arrow",
    "from_huggingface",
    "from_items",
    "from_numpy",
    "from_pandas",
    "from_torch",
    "range",
    "range_tensor",
    "read_csv",
    "read_images",
    "read_json",
    "read_parquet",
    "read_text",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        error = missing("holdfast.data", name)
        if sys._getframe(1).f_code.co_name == "_handle_fromlist" and name in MODULE:
            raise ImportError(str(error))  # of "from holdfast.data import name", which hides the text of other errors
        raise error
    try:
        return getattr(importlib.import_module(f"holdfast.data.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("pyarrow", "numpy"):
            raise ImportError(f"holdfast.data needs {error.name}: run pip install 'holdfast[data]'") from error
        raise
