"""How population-based training makes a new configuration from a good one, and completes a first one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from holdfast.train.checks import WrongTypeError
from holdfast.tune.space.domains import Domain, Function, RandomSource
from holdfast.tune.space.tree import substituted

Mutations = Mapping[str, Any]


def check_mutations(mutations: Mutations, argument: str) -> None:
    for key, values in mutations.items():
        name = f"{argument}[{key!r}]"
        if isinstance(values, dict):
            check_mutations(values, name)
        elif isinstance(values, Function):
            raise ValueError(f"{name}: sample_from is not possible here; pass a list, tune.uniform(...) or a function")
        elif isinstance(values, (list, tuple)):
            if not values:
                raise ValueError(f"{name}={values!r}: pass at least one value")
        elif not isinstance(values, Domain) and not callable(values):
            raise WrongTypeError(
                f"{name}={values!r}: pass a list, a dict, tune.uniform(...) or a function without arguments"
            )


def filled(config: Mapping[str, Any], mutations: Mutations, source: RandomSource) -> dict[str, Any]:
    """The configuration, with missing parameters to mutate drawn from their domains."""
    new: dict[str, Any] = substituted(dict(config), {})
    for key, values in mutations.items():
        if isinstance(values, dict):
            inner = new.get(key)
            new[key] = filled(inner if isinstance(inner, dict) else {}, values, source)
        elif key not in new:
            new[key] = _resampled(values, source)
    return new


class Explorer:
    """Perturbs or resamples each parameter, and remembers the operation."""

    def __init__(
        self, mutations: Mutations, resample_probability: float, factors: Sequence[float], source: RandomSource
    ) -> None:
        self._mutations = mutations
        self._resample_probability = resample_probability
        self._factors = factors
        self._source = source

    def explore(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The new configuration, and the operation for each parameter."""
        complete = filled(config, self._mutations, self._source)
        return self._explored(complete, self._mutations)

    def _explored(self, config: dict[str, Any], mutations: Mutations) -> tuple[dict[str, Any], dict[str, Any]]:
        new, operations = dict(config), dict[str, Any]()
        for key, values in mutations.items():
            if isinstance(values, dict):
                new[key], operations[key] = self._explored(config[key], values)
            elif isinstance(values, (list, tuple)):
                new[key], operations[key] = self._moved(config[key], values)
            else:
                new[key], operations[key] = self._scaled(config[key], values)
        return new, operations

    def _moved(self, value: Any, values: Sequence[Any]) -> tuple[Any, str]:
        """To a neighbour in the list, or anywhere in it."""
        if self._source.random() < self._resample_probability or value not in values:
            return _resampled(values, self._source), "resample"
        step = -1 if self._source.random() < 0.5 else 1
        old = list(values).index(value)
        place = min(max(old + step, 0), len(values) - 1)
        noop = " (noop)" if place == old else ""
        return values[place], f"shift {'left' if step < 0 else 'right'}{noop}"

    def _scaled(self, value: Any, values: Domain | Callable[[], Any]) -> tuple[Any, str]:
        """By one of the factors, or drawn again. A value that is not a number can only be drawn again."""
        if self._source.random() < self._resample_probability or not isinstance(value, Real):
            new, operation = _resampled(values, self._source), "resample"
        else:
            factor = picked(self._factors, self._source)
            new, operation = value * factor, f"* {factor:g}"
        if isinstance(value, bool):
            return bool(new), operation
        if isinstance(value, Integral) and isinstance(new, Real) and math.isfinite(new):
            return round(float(new)), operation
        return new, operation


def _resampled(values: Any, source: RandomSource) -> Any:
    if isinstance(values, Domain):
        return substituted(values.draw(source, {}), {})
    return picked(values, source) if isinstance(values, (list, tuple)) else values()


def picked(values: Sequence[Any], source: RandomSource) -> Any:
    return values[int(source.random() * len(values))]


def summary(old: Mapping[str, Any], new: Mapping[str, Any], operations: Mapping[str, Any], prefix: str = "") -> str:
    """``lr: 0.1 (* 0.8) 0.08``, for each parameter that was mutated."""
    parts = []
    for key, operation in operations.items():
        before, after = old.get(key), new.get(key)
        if isinstance(operation, Mapping):
            parts.append(summary(before or {}, after or {}, operation, f"{prefix}{key}/"))
        else:
            parts.append(f"{prefix}{key}: {before!r} ({operation}) {after!r}")
    return ", ".join(part for part in parts if part)
