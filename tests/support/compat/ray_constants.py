"""The constants that scripts import from Ray's modules, read from its sources, and which of them are not here."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from typing import Any

from support.compat import ray_names

MODULES = ("air.constants", "train.constants", "tune.constants", "tune.result")
_INTERNAL = "internal to Ray"
_VARIABLE = "the name of an environment variable that has no effect here, or of a default for one"
_V1 = "of Train V1"
# By the beginning of the dotted name
NOT_HERE = {
    "air.constants.AIR_ENV_VARS": _VARIABLE,
    "air.constants.CHECKPOINT_ID_ATTR": _INTERNAL,
    "air.constants.CHECKPOINT_TUNE_METADATA_FILE": _INTERNAL,
    "air.constants.COPY_DIRECTORY_CHECKPOINTS_INSTEAD_OF_MOVING_ENV": _VARIABLE,
    "air.constants.LAZY_CHECKPOINT_MARKER_FILE": _INTERNAL,
    "air.constants.MAX_REPR_LENGTH": _INTERNAL,
    "air.constants.SESSION_MISUSE_LOG_ONCE_KEY": _INTERNAL,
    "train.constants.CHECKPOINT_": _INTERNAL,
    "train.constants.COPY_DIRECTORY_": _VARIABLE,
    "train.constants.DEFAULT_JAX_": _VARIABLE,
    "train.constants.DEFAULT_TORCH_": _VARIABLE,
    "train.constants.DETAILED_AUTOFILLED_KEYS": _V1,
    "train.constants.ENABLE_": _VARIABLE,
    "train.constants.JAX_": _VARIABLE,
    "train.constants.RAY_TRAIN_": _VARIABLE,
    "train.constants.RESULT_FILE_JSON": _V1,
    "train.constants.TIME_TOTAL_S": _V1,
    "train.constants.TORCH_": _VARIABLE,
    "train.constants.TRAIN_CHECKPOINT_SUBDIR": _V1,
    "train.constants.TRAIN_EN": _VARIABLE,
    "train.constants.TRAIN_PLACEMENT_": _VARIABLE,
    "train.constants.TUNE_": _INTERNAL,
    "train.constants.V2_": _INTERNAL,
    "train.constants.WORKER_": _V1,
    "tune.result.EXPR_META_FILE": "a file that is not written",
    "tune.result.JOB_META_FILE": "a file that is not written",
    "tune.result.RESULT_DUPLICATE": _INTERNAL,
    "tune.result.STDERR_FILE": _INTERNAL,
    "tune.result.STDOUT_FILE": _INTERNAL,
}


def values() -> dict[str, Any]:
    """By dotted name; ``...`` where the value is no literal."""
    return {f"{module}.{name}": value for module in MODULES for name, value in _of(module)}


def _of(module: str) -> Iterator[tuple[str, Any]]:
    source = ray_names.source_of("ray", module)
    assert source is not None
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_"):
                    yield target.id, _literal(node.value)
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.name, ...) for alias in node.names if alias.name.isupper())


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return ...


def missing() -> set[str]:
    return {name for name in values() if not hasattr(*_here(name))}


def different() -> set[str]:
    known = {name: value for name, value in values().items() if value is not ... and hasattr(*_here(name))}
    return {name for name, value in known.items() if getattr(*_here(name)) != value}


def _here(name: str) -> tuple[Any, str]:
    module, _, constant = name.rpartition(".")
    return importlib.import_module(f"holdfast.{module}"), constant


def is_decided(name: str) -> bool:
    return any(name.startswith(start) for start in NOT_HERE)
