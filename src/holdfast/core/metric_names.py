"""How the values of a report are named: a nested value by its keys with slashes between, ``{"a": {"b": 1}}`` is "a/b".

A value counts as a number if it is one in Python's sense or the single item of a numpy or torch value; a bool is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

TRAINING_ITERATION = "training_iteration"  # the name of the counter of a trial's results
# What the results of trials have besides the metrics that were reported
AUTO_KEYS = frozenset(
    {
        TRAINING_ITERATION,
        "checkpoint_dir_name",
        "config",
        "date",
        "done",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "trial_id",
    }
)
_LEAVES = frozenset({float, int, str, bool, type(None)})


def flat_items(nested: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values with their names. An empty mapping is a value."""
    for key, value in nested.items():
        if type(value) in _LEAVES and not prefix and type(key) is str:  # most are, and looking closer costs more
            yield key, value
        elif isinstance(value, Mapping) and value:
            yield from flat_items(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def lookup(nested: Mapping[Any, Any], name: str, default: Any = None) -> Any:
    """The value of that name: the key itself if there is one, else the way through nested mappings."""
    if name in nested:
        return nested[name]
    head, slash, rest = name.partition("/")
    while slash:
        inner = nested.get(head)
        if isinstance(inner, Mapping):
            found = lookup(inner, rest, _MISSING)
            if found is not _MISSING:
                return found
        more, slash, rest = rest.partition("/")
        head = f"{head}/{more}"
    return default


def number(value: Any) -> float | None:
    """The value as a float, NaN and infinities included; None if it is not a number."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or value is None or isinstance(value, (str, bytes)):
        return None
    if isinstance(value, (int, float)):
        return _float(value)
    item = getattr(value, "item", None)
    if not callable(item):
        return None
    try:
        scalar = item()
    except (TypeError, ValueError, RuntimeError):
        return None
    return _float(scalar) if isinstance(scalar, (int, float)) and not isinstance(scalar, bool) else None


def metric_number(result: Mapping[str, Any], metric: str) -> float | None:
    """The metric as a number that can be compared; None if it is missing, not a number, NaN or an infinity."""
    value = number(lookup(result, metric))
    return value if value is not None and math.isfinite(value) else None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int beyond all floats
        return math.inf if value > 0 else -math.inf


_MISSING = object()
