"""Checks of arguments. Each error names the argument, its value, and what to pass instead.

``argument`` is written as ``ClassName(field`` so that messages read ``ClassName(field=<given>): <remedy>``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec

_warned: set[str] = set()


class WrongTypeError(TypeError, ValueError):
    """An argument of the wrong type. Scripts that moved from Ray catch a ``ValueError`` for most of these."""


def check_int(argument: str, value: Any, *, least: int, note: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongTypeError(f"{argument}={value!r}): pass an int{note}")
    if value < least:
        raise ValueError(f"{argument}={value!r}): must be at least {least}{note}")


def check_number(argument: str, value: Any, *, least: float | None = None, above: float | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongTypeError(f"{argument}={value!r}): pass a number")
    if math.isnan(value):
        raise ValueError(f"{argument}=nan): pass a number")
    if least is not None and value < least:
        raise ValueError(f"{argument}={value!r}): must be at least {least:g}")
    if above is not None and value <= above:
        raise ValueError(f"{argument}={value!r}): must be greater than {above:g}")


def check_bool(argument: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise WrongTypeError(f"{argument}={value!r}): pass True or False")


def check_type(argument: str, value: Any, kind: type, remedy: str) -> None:
    if not isinstance(value, kind):
        raise WrongTypeError(f"{argument}={value!r}): {remedy}")


def check_plain(owner: str, argument: str, value: Mapping[Any, Any], remedy: str) -> None:
    """Check that the value can be sent to workers. The error names the innermost part that cannot be sent."""
    odd = next((key for key in value if not isinstance(key, str)), None)
    if odd is not None:
        raise TypeError(f"{owner}({argument}=…): its key {odd!r} is not a str; {remedy}")
    if not _is_plain(value):
        try:
            where, part = _not_plain(value)
        except RecursionError:
            where, part = "", value
        kind = f"{part!r}" if isinstance(part, int | float | str) else f"of type {type(part).__name__}"
        raise TypeError(
            f"{owner}({argument}=…): {argument}{where} is {kind}, which cannot be sent to workers; {remedy}"
        )


def _not_plain(value: Any) -> tuple[str, Any]:
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, part in parts:
        if not _is_plain(part):
            where, innermost = _not_plain(part)
            return f"[{key!r}]{where}", innermost
    return "", value


def _is_plain(value: Any) -> bool:
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def warn_once(key: str, message: str, *, stacklevel: int = 4) -> None:
    """Warn about ``key`` once in a process: a config may be built many times, and again in each worker."""
    if key in _warned:
        return
    _warned.add(key)
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
