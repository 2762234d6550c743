"""Output of commands: aligned text for people, strict JSON for programs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.printable import duration, printable, printable_json, printable_lines
from holdfast.store.sealed import Damage
from holdfast.store.times import is_time
from holdfast.ui.display_picture import pick_metrics, value_text

_SHOWN_METRICS = 6


def say(text: str = "", *, flush: bool = False) -> None:
    """One line for people: nothing in it can do more than be read."""
    print(printable(text), flush=flush)


def print_json(value: Any) -> None:
    print(printable_json(json.dumps(plain(value), indent=2, ensure_ascii=False)))


def print_json_line(value: Any) -> None:
    print(printable_json(json.dumps(plain(value), ensure_ascii=False)), flush=True)


def plain(value: Any) -> Any:
    """The value as strict JSON has it: NaN and infinities, and what else JSON lacks, become strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> None:
    """Columns as wide as their widest cell; the last one is left as long as it is."""
    lines = [tuple(map(printable, header)), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print(f"{indent}{'  '.join(cells)}".rstrip())


def note(text: str, *, lines: bool = False) -> None:
    """For a person only: never mixed into output that a program reads. ``lines``: several lines, as of an error."""
    print(printable_lines(text) if lines else printable(text), file=sys.stderr)


def local_time(seconds: float | None) -> str:
    if seconds is None or not is_time(seconds):
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def iso_time(seconds: float | None) -> str | None:
    if seconds is None or not is_time(seconds):
        return None
    milliseconds = round(seconds * 1000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{whole}.{milliseconds % 1000:03}Z"


def size_text(size: int) -> str:
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def elapsed_text(seconds: float) -> str:
    return f"+{seconds:.2f} s" if seconds < 60 else f"+{duration(seconds)}"


def metrics_text(metrics: Any, most: int = _SHOWN_METRICS) -> str:
    if not isinstance(metrics, Mapping) or not metrics:
        return "-"
    shown = [f"{name} {value_text(value)}" for name, value in pick_metrics(metrics, most)]
    more = len(metrics) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "")


def damage_text(damage: Damage) -> str:
    return f"{damage.path} ({damage.where}): {damage.what}".replace("\n", " ")


def damage_json(found: Iterable[Damage]) -> list[dict[str, str]]:
    return [{"path": d.path, "where": d.where, "what": d.what} for d in found]
