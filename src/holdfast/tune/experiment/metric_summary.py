"""The minimum, maximum and averages of each metric of a trial, updated with each result and without keeping the
results."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from holdfast.core.metric_names import flat_items, number


class MetricSummary:
    """``analysis`` has Ray's names: "max", "min", "avg", "last", "last-5-avg" and "last-10-avg"."""

    def __init__(self) -> None:
        self.analysis: dict[str, dict[str, float]] = {}
        self._last: dict[str, deque[float]] = {}
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, result: Mapping[str, Any]) -> None:
        for name, item in flat_items({key: item for key, item in result.items() if key != "config"}):
            value = number(item)
            if value is not None:
                self._add(name, value)

    def _add(self, name: str, value: float) -> None:
        last = self._last.setdefault(name, deque(maxlen=10))
        last.append(value)
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = total + value, count + 1
        known, recent = self.analysis.get(name, {}), list(last)
        self.analysis[name] = {
            "max": _better(max, known.get("max"), value),
            "min": _better(min, known.get("min"), value),
            "avg": (total + value) / (count + 1),
            "last": value,
            "last-5-avg": sum(recent[-5:]) / len(recent[-5:]),
            "last-10-avg": sum(recent) / len(recent),
        }


def _better(choose: Any, known: float | None, value: float) -> float:
    """NaN only if there is no other value."""
    if known is None or math.isnan(known):
        return value
    return known if math.isnan(value) else float(choose(known, value))
