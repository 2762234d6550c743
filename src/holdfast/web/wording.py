"""How pages write values. All of it is text, which templates escape."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.printable import duration, printable, printable_lines
from holdfast.store.times import is_time
from holdfast.ui.display_picture import clean, pick_metrics, value_text

NONE = "\u2013"  # an en dash, as in the templates
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")


def moment(seconds: float | None) -> str:
    if seconds is None or not is_time(seconds):
        return NONE
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ago(seconds: float | None, now: float | None = None) -> str:
    if seconds is None or not is_time(seconds):
        return NONE
    passed = (time.time() if now is None else now) - seconds
    if passed < 1:
        return "just now"
    return f"{duration(passed)} ago" if passed < 172_800 else f"{passed / 86_400:.0f} days ago"


def size(value: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def metrics(values: Any, count: int = 4) -> list[tuple[str, str]]:
    if not isinstance(values, Mapping):
        return []
    return [(name, value_text(value)) for name, value in pick_metrics(dict(flat_items(values)), count)]


def first_metric(values: Any) -> str:
    """The name and value of the first metric shown, for sorting."""
    if not isinstance(values, Mapping):
        return ""
    return next((f"{line(name)}\t{line(str(value))}" for name, value in pick_metrics(dict(flat_items(values)), 1)), "")


def value(thing: Any) -> str:
    """A configuration value in one line."""
    if isinstance(thing, (dict, list, tuple)):
        try:
            return printable(json.dumps(thing, default=repr, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            return printable(repr(thing))
    return printable(str(thing)) if isinstance(thing, str) else value_text(thing)


def line(text: str) -> str:
    """A line of a log without escape sequences."""
    return clean(text)


def lines(text: str) -> str:
    """Several lines, such as those of an error, without escape sequences."""
    return printable_lines(_ESCAPE.sub("", text))


def plain_json(thing: Any) -> Any:
    """The value as strict JSON: NaN and infinities become None."""
    if isinstance(thing, Mapping):
        return {str(key): plain_json(item) for key, item in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain_json(item) for item in thing]
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else None
    return thing if thing is None or isinstance(thing, (bool, int, str)) else repr(thing)
