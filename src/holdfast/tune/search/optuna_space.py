"""A search space as Optuna samples it.

Optuna gets plain numbers, strings and bools. Multiples of a ``q`` are sampled as whole numbers, which is exact and
works on logarithmic scales too, and values that Optuna cannot hold as their positions among the choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from holdfast.tune.search_space import Categorical, Domain, Float, Function, Integer
from holdfast.tune.space.tree import Path, is_grid, leaves, slashed, substituted

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class Parameter:
    """One value that Optuna samples: where it is in the config, and how the two see it."""

    path: Path
    distribution: BaseDistribution
    unit: float | int | None = None  # Optuna's number is how many of these
    choices: tuple[Any, ...] | None = None  # Optuna's number is a position in these

    @property
    def name(self) -> str:
        return slashed(self.path)

    def ours(self, sampled: Any) -> Any:
        if self.choices is not None:
            return self.choices[sampled]
        if isinstance(self.unit, float):
            return float(Decimal(repr(self.unit)) * sampled)
        return sampled if self.unit is None else sampled * self.unit

    def optunas(self, value: Any) -> Any:
        if self.choices is not None:
            for position, choice in enumerate(self.choices):
                if _equal(choice, value):
                    return position
            raise ValueError(f"{self.name!r} is {value!r}, which is none of {self.choices!r}")
        if self.unit is None:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{self.name!r} is {value!r}, which is no number")
        return round(value / self.unit)


class OptunaSpace:
    """A tree of constants, domains and Optuna's distributions."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._tree = dict(tree)
        found = (_parameter(path, leaf) for path, leaf in leaves(self._tree))
        self.parameters = {parameter.name: parameter for parameter in found if parameter is not None}

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {name: parameter.distribution for name, parameter in self.parameters.items()}

    def config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The tree with what Optuna sampled in it. Functions of ``sample_from`` are still to be called."""
        values = {self.parameters[name].path: self.parameters[name].ours(value) for name, value in params.items()}
        tree: dict[str, Any] = substituted(self._tree, values)
        return tree

    def params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What Optuna calls the values of a config, nested or by flat names; what it does not sample is passed over."""
        params = {}
        for name, parameter in self.parameters.items():
            value = _at(config, parameter.path, config.get(name, _MISSING))
            if value is not _MISSING:
                params[name] = parameter.optunas(value)
        return params

    def check_point(self, point: Mapping[str, Any], argument: str) -> None:
        if not isinstance(point, Mapping):
            raise TypeError(f"{argument}={point!r}: pass a dict")
        known = [slashed(path) for path, _ in leaves(self._tree)]
        for path, _ in leaves(dict(point)):
            name = slashed(path)
            if not any(name == each or name.startswith(f"{each}/") for each in known):
                raise ValueError(f"{argument}: {name!r} is not in the search space, which has {', '.join(known)}")


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


def _parameter(path: Path, leaf: Any) -> Parameter | None:
    from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

    if isinstance(leaf, BaseDistribution):
        return Parameter(path, leaf)
    if isinstance(leaf, Float) and leaf.q is None:
        return Parameter(path, FloatDistribution(leaf.lower, leaf.upper, log=leaf.log))
    if isinstance(leaf, Float) and leaf.q is not None:
        low, high = round(leaf.lower / leaf.q), round(leaf.upper / leaf.q)
        return Parameter(path, IntDistribution(low, high, log=leaf.log), unit=leaf.q)
    if isinstance(leaf, Integer):
        low, high = leaf.lowest // leaf.q, leaf.highest // leaf.q
        return Parameter(path, IntDistribution(low, high, log=leaf.log), unit=None if leaf.q == 1 else leaf.q)
    if isinstance(leaf, Categorical):
        return _categorical(path, leaf.categories)
    if is_grid(leaf):
        raise ValueError(f"OptunaSearch: {slashed(path)!r} is a grid_search; use choice")
    if isinstance(leaf, Domain) and not isinstance(leaf, Function):
        raise ValueError(
            f"OptunaSearch: {slashed(path)!r} is {leaf.domain_str}, which Optuna cannot sample; use uniform"
        )
    return None


def _categorical(path: Path, choices: tuple[Any, ...]) -> Parameter:
    from optuna.distributions import CategoricalDistribution

    plain = all(choice is None or isinstance(choice, (bool, int, float, str)) for choice in choices)
    if plain and len(set(choices)) == len(choices):  # 1, 1.0 and True are one to Optuna
        return Parameter(path, CategoricalDistribution(choices))
    return Parameter(path, CategoricalDistribution(range(len(choices))), choices=choices)


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
