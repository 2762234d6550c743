"""A search space in the form that libraries use: flat names, each with a range of numbers or a number of choices.
Multiples of a ``q`` are sampled as whole numbers, which is exact and also works on logarithmic scales. Choices are
sampled as positions, so a library never holds a value that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from holdfast.tune.search_space import Categorical, Domain, Float, Function, Integer
from holdfast.tune.space.tree import Path, is_grid, leaves, slashed, substituted


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones, or on a logarithmic scale."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Choices:
    """The numbers from 0 to below ``count``, without an order between them."""

    count: int


@dataclass(frozen=True)
class Parameter:
    """One value that a library samples: its place in the config, and how library and config represent it."""

    path: Path
    theirs: Any  # a Range, Choices, or the library's own types
    unit: float | int | None = None  # the library's number is how many of these
    choices: tuple[Any, ...] | None = None  # the library's number is a position in these

    @property
    def name(self) -> str:
        return slashed(self.path)

    def ours(self, sampled: Any) -> Any:
        if self.choices is not None:
            return self.choices[sampled]
        if isinstance(self.unit, float):
            return float(Decimal(repr(self.unit)) * sampled)
        return sampled if self.unit is None else sampled * self.unit

    def sampled(self, value: Any) -> Any:
        """The library's sample for this value."""
        if self.choices is not None:
            for position, choice in enumerate(self.choices):
                if _equal(choice, value):
                    return position
            raise ValueError(f"{self.name!r} is {value!r}, which is none of {self.choices!r}")
        if self.unit is None:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{self.name!r} is {value!r}, which is not a number")
        return round(value / self.unit)


class FlatSpace:
    """A tree of constants and parameters; ``parameter_of`` returns the parameter of a leaf, or None for a constant."""

    def __init__(self, tree: Mapping[str, Any], parameter_of: Callable[[Path, Any], Parameter | None]) -> None:
        self._tree = dict(tree)
        found = (parameter_of(path, leaf) for path, leaf in leaves(self._tree))
        self.parameters = {parameter.name: parameter for parameter in found if parameter is not None}

    def config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The tree with the library's samples in it. Functions of ``sample_from`` are called later."""
        values = {self.parameters[name].path: self.parameters[name].ours(value) for name, value in params.items()}
        tree: dict[str, Any] = substituted(self._tree, values)
        return tree

    def params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The library's names for the values of a config, nested or by flat names; others are ignored."""
        params = {}
        for name, parameter in self.parameters.items():
            value = _at(config, parameter.path, config.get(name, _MISSING))
            if value is not _MISSING:
                params[name] = parameter.sampled(value)
        return params

    def check_point(self, point: Mapping[str, Any], argument: str) -> None:
        if not isinstance(point, Mapping):
            raise TypeError(f"{argument}={point!r}: pass a dict")
        known = [slashed(path) for path, _ in leaves(self._tree)]
        for path, _ in leaves(dict(point)):
            name = slashed(path)
            if not any(name == each or name.startswith(f"{each}/") for each in known):
                raise ValueError(f"{argument}: {name!r} is not in the search space, which has {', '.join(known)}")


def numeric(who: str, path: Path, leaf: Any) -> Parameter | None:
    """A domain as a ``Range`` or ``Choices``; ``who`` cannot sample it otherwise."""
    if isinstance(leaf, Float) and leaf.q is None:
        return Parameter(path, Range(leaf.lower, leaf.upper, leaf.log))
    if isinstance(leaf, Float) and leaf.q is not None:
        low, high = round(leaf.lower / leaf.q), round(leaf.upper / leaf.q)
        return Parameter(path, Range(low, high, leaf.log, whole=True), unit=leaf.q)
    if isinstance(leaf, Integer):
        whole = Range(leaf.lowest // leaf.q, leaf.highest // leaf.q, leaf.log, whole=True)
        return Parameter(path, whole, unit=None if leaf.q == 1 else leaf.q)
    if isinstance(leaf, Categorical):
        return Parameter(path, Choices(len(leaf)), choices=leaf.categories)
    if is_grid(leaf):
        raise ValueError(f"{who}: {slashed(path)!r} is a grid_search; use choice")
    if isinstance(leaf, Domain) and not isinstance(leaf, Function):
        raise ValueError(f"{who}: {slashed(path)!r} is {leaf!r}, which it cannot sample; use uniform")
    return None


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The tree that names with slashes describe: ``{"a/b": 1}`` is ``{"a": {"b": 1}}``."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *above, last = str(name).split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = nested(value) if isinstance(value, Mapping) and not is_grid(value) else value
    return tree


def _equal(choice: Any, value: Any) -> bool:
    if choice is value:
        return True
    try:
        if isinstance(choice, (list, tuple)) and isinstance(value, (list, tuple)):
            return list(choice) == list(value)  # JSON knows no tuples
        return bool(choice == value) and type(choice) is type(value)
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors compare by element
        return False


def _at(node: Any, path: Path, default: Any) -> Any:
    for key in path:
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            return default
    return node


_MISSING = object()
