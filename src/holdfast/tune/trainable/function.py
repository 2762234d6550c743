"""Function trainables: ``fn(config)`` runs once in the trial's process.

It may call ``report()``, yield its results, or return the last one; a number means ``{"_metric": number}``. The trial
ends when the function returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any

from holdfast.core.metric_names import number
from holdfast.errors import TrainableError
from holdfast.train.api import report
from holdfast.tune.result_metrics import DEFAULT_METRIC
from holdfast.worker.session import current

Function = Callable[[dict[str, Any]], Any]


def function_entry(fn: Function) -> FunctionEntry:
    """A trial's process calls this with the trial's config; the function's arguments are checked here."""
    check_function(fn)
    return FunctionEntry(fn)


def check_function(fn: Any) -> None:
    if not callable(fn):
        raise TrainableError(f"trainable={fn!r}: pass a function of one argument, config, or a subclass of Trainable")
    called = inspect.unwrap(fn)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise ValueError(f"trainable={_named(fn)}: it is async; pass a plain function, which may call asyncio.run()")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # some built-in functions have no signature to look at
    try:
        signature.bind({})
    except TypeError as error:
        raise ValueError(
            f"trainable={_named(fn)}{signature}: a trainable function is called with one argument, config ({error}). "
            "Give other arguments with tune.with_parameters(fn, name=value)."
        ) from None


class FunctionEntry:
    def __init__(self, fn: Function) -> None:
        self.fn = fn

    def __call__(self, config: dict[str, Any]) -> None:
        session = current()
        if not session.started:
            session.ready()
        output = self.fn(config)
        _take(_drained(output) if inspect.isgenerator(output) else output, "returned")


def _drained(results: Generator[object, Any, object]) -> Any:
    """Report the values that a generator yields; return its return value."""
    while True:
        try:
            result = next(results)
        except StopIteration as end:
            return end.value
        _take(result, "yielded")


def _take(output: Any, how: str) -> None:
    """Report the result of a function. None, False and an empty dict count as nothing."""
    if output is None or output is False:
        return
    if isinstance(output, Mapping):
        if output:
            report(dict(output))
    elif output is True or number(output) is not None:
        report({DEFAULT_METRIC: output})
    else:
        raise TypeError(
            f"the trainable function {how} {output!r:.200}, a {type(output).__name__}: return or yield a dict of "
            'metrics, as in {"loss": 0.1}, or one number, or nothing if it calls report()'
        )


def _named(fn: Any) -> str:
    return str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or repr(fn))
