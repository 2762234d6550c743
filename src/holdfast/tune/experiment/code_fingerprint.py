"""A fingerprint of a trainable's code: whether a later script means the same function, not only the same name.

It covers the bytecode of the function or class and of the functions that it calls in its own module. Line numbers,
comments and values do not count. Another Python compiles differently, so its version is a part of the fingerprint.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from types import CodeType, FunctionType
from typing import Any


def fingerprint(trainable: Any) -> str:
    """Empty if there is no Python code to inspect."""
    found: list[str] = []
    _visit(_innermost(trainable), found, set())
    if not found:
        return ""
    digest = hashlib.sha256("\n".join(found).encode(errors="backslashreplace")).hexdigest()[:16]
    return f"{sys.version_info.major}.{sys.version_info.minor}:{digest}"


def is_other_code(before: str, now: str) -> bool:
    """Only code that the same Python compiled can be compared."""
    return bool(before and now) and before.partition(":")[0] == now.partition(":")[0] and before != now


def _innermost(trainable: Any) -> Any:
    trainable = getattr(trainable, "train_loop_per_worker", trainable)  # of a trainer
    while isinstance(trainable, functools.partial):
        trainable = trainable.func
    if not isinstance(trainable, type):
        trainable = inspect.unwrap(trainable)
    if isinstance(trainable, (type, FunctionType)):
        return trainable
    return getattr(trainable, "__func__", None) or type(trainable)


def _visit(thing: Any, found: list[str], seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, FunctionType):
        found.append(_code(thing.__code__))
        for name in sorted(_names(thing.__code__)):
            used = thing.__globals__.get(name)
            if isinstance(used, (FunctionType, type)) and used.__module__ == thing.__module__:
                _visit(used, found, seen)
    elif isinstance(thing, type):
        for base in thing.__mro__:
            if base.__module__ == thing.__module__:
                for _, member in sorted(vars(base).items()):
                    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                    if isinstance(function, FunctionType):
                        _visit(inspect.unwrap(function), found, seen)


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _code(code: CodeType) -> str:
    parts = [code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars]
    for const in code.co_consts:
        if isinstance(const, CodeType):
            parts.append(_code(const))
        else:
            parts.append(repr(sorted(map(repr, const))) if isinstance(const, frozenset) else repr(const))
    return "\0".join(parts)
