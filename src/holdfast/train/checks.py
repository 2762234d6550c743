"""Checks of arguments. Each error names the argument, what was given, and what to pass instead.

``argument`` is written as ``ClassName(field`` so that messages read ``ClassName(field=<given>): <remedy>``.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

_warned: set[str] = set()


def check_int(argument: str, value: Any, *, least: int, note: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{argument}={value!r}): pass an int{note}")
    if value < least:
        raise ValueError(f"{argument}={value!r}): must be at least {least}{note}")


def check_number(argument: str, value: Any, *, least: float | None = None, above: float | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{argument}={value!r}): pass a number")
    if math.isnan(value):
        raise ValueError(f"{argument}=nan): pass a number")
    if least is not None and value < least:
        raise ValueError(f"{argument}={value!r}): must be at least {least:g}")
    if above is not None and value <= above:
        raise ValueError(f"{argument}={value!r}): must be greater than {above:g}")


def check_bool(argument: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{argument}={value!r}): pass True or False")


def check_type(argument: str, value: Any, kind: type, remedy: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{argument}={value!r}): {remedy}")


def warn_once(key: str, message: str, *, stacklevel: int = 4) -> None:
    """Warn about ``key`` once in a process: a config may be built many times, and again in each worker."""
    if key in _warned:
        return
    _warned.add(key)
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
