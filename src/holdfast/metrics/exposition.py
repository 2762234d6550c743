"""Prometheus's text format, version 0.0.4: families of samples, each with its help and type."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "holdfast_"
Labels = Mapping[str, str]


class Sample(NamedTuple):
    suffix: str
    labels: Labels
    value: float


class Family(NamedTuple):
    name: str
    help: str
    kind: str
    samples: list[Sample]


def gauge(name: str, help: str, labels: Labels, value: float | Mapping[str, int], by: str = "") -> Family:
    return _family(name, help, "gauge", labels, value, by)


def counter(name: str, help: str, labels: Labels, value: float | Mapping[str, int], by: str = "") -> Family:
    return _family(name, help, "counter", labels, value, by)


def _family(name: str, help: str, kind: str, labels: Labels, value: float | Mapping[str, int], by: str) -> Family:
    """``value`` is one number, or one for each value of the label ``by``."""
    if isinstance(value, Mapping):
        samples = [Sample("", {**labels, by: key}, number) for key, number in sorted(value.items())]
    else:
        samples = [Sample("", labels, value)]
    return Family(name, help, kind, samples)


class Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = [*bounds, math.inf]
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, help: str, labels: Labels) -> Family:
        samples, below = [], 0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            below += count
            samples.append(Sample("_bucket", {**labels, "le": _number(bound)}, below))
        samples += [Sample("_sum", labels, self._sum), Sample("_count", labels, below)]
        return Family(name, help, "histogram", samples)


def text(families: Iterable[Family]) -> str:
    lines = []
    for family in families:
        name = f"{_PREFIX}{family.name}"
        lines += [f"# HELP {name} {_escaped(family.help, quotes=False)}", f"# TYPE {name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
            lines.append(f"{name}{sample.suffix}{{{labels}}} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _escaped(value: str, quotes: bool = True) -> str:
    value = value.replace("\\", r"\\").replace("\n", r"\n")
    return value.replace('"', r"\"") if quotes else value


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
