"""Ray's environment variables that change what a script sees. The moving guide says why others have no effect."""

from __future__ import annotations

import importlib
import os
from typing import TypeVar

CHDIR_TO_TRIAL_DIR = "RAY_CHDIR_TO_TRIAL_DIR"
COLLECTIVE_TIMEOUT_S = "RAY_TRAIN_COLLECTIVE_TIMEOUT_S"
TRAIN_CALLBACKS, TUNE_CALLBACKS = "RAY_TRAIN_CALLBACKS", "RAY_TUNE_CALLBACKS"
NO_DEFAULT_LOGGERS = "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"
NO_METRIC_CHECK = "TUNE_DISABLE_STRICT_METRIC_CHECKING"
LONGEST_NAME = "TUNE_MAX_LEN_IDENTIFIER"
HONOURED = (
    CHDIR_TO_TRIAL_DIR,
    COLLECTIVE_TIMEOUT_S,
    TRAIN_CALLBACKS,
    TUNE_CALLBACKS,
    NO_DEFAULT_LOGGERS,
    NO_METRIC_CHECK,
    LONGEST_NAME,
)
_Kind = TypeVar("_Kind")


def is_on(variable: str) -> bool:
    return os.environ.get(variable, "0") == "1"


def number_in(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise ValueError(f"the environment variable {variable}={text!r}: must be a number") from None


def collective_timeout_s() -> float | None:
    """None without a limit."""
    limit = number_in(COLLECTIVE_TIMEOUT_S, -1)
    return limit if limit > 0 else None


def callbacks_in(variable: str, kind: type[_Kind]) -> list[_Kind]:
    """Fresh instances of the classes that the variable names, as in "package.callbacks.Mine,package.Other"."""
    paths = [path.strip() for path in os.environ.get(variable, "").split(",")]
    return [_made(variable, path, kind) for path in paths if path]


def _made(variable: str, path: str, kind: type[_Kind]) -> _Kind:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)()
        if not isinstance(found, kind):
            raise TypeError(f"it is not a {kind.__name__}")
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(f"the environment variable {variable} names {path}, which cannot be used: {error}") from error
    return found
