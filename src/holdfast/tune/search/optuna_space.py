"""A search space as Optuna samples it. It gets plain numbers, strings and bools, and positions for others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.tune.search.flat_space import FlatSpace, Parameter, Range, numeric
from holdfast.tune.space.domains import Categorical, Float, Function, Integer
from holdfast.tune.space.tree import Path, leaves, slashed

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class OptunaSpace(FlatSpace):
    """A tree of constants, domains and Optuna's distributions."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        super().__init__(tree, _parameter)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {name: parameter.theirs for name, parameter in self.parameters.items()}


def distributions_of(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """For Optuna's own use: values as they are in the config, multiples included, except on a logarithmic scale, where
    Optuna has none."""
    found = ((path, _distribution(path, leaf)) for path, leaf in leaves(dict(space)))
    return {slashed(path): distribution for path, distribution in found if distribution is not None}


def _distribution(path: Path, leaf: Any) -> BaseDistribution | None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(leaf, Categorical):
        return CategoricalDistribution(leaf.categories)
    if isinstance(leaf, Float):
        return FloatDistribution(leaf.lower, leaf.upper, log=leaf.log, step=None if leaf.log else leaf.q)
    if isinstance(leaf, Integer):
        return IntDistribution(leaf.lowest, leaf.highest, log=leaf.log, step=1 if leaf.log else leaf.q)
    if isinstance(leaf, Function):
        raise ValueError(f"OptunaSearch: {slashed(path)!r} is a sample_from, which Optuna cannot sample")
    known = _parameter(path, leaf)  # raises an error for the others
    return None if known is None else known.theirs


def _parameter(path: Path, leaf: Any) -> Parameter | None:
    from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

    if isinstance(leaf, BaseDistribution):
        return Parameter(path, leaf)
    found = numeric("OptunaSearch", path, leaf)
    if found is None:
        return None
    if found.choices is not None:
        return _categorical(path, found.choices)
    drawn: Range = found.theirs
    if drawn.whole:
        return Parameter(path, IntDistribution(int(drawn.low), int(drawn.high), log=drawn.log), unit=found.unit)
    return Parameter(path, FloatDistribution(drawn.low, drawn.high, log=drawn.log))


def _categorical(path: Path, choices: tuple[Any, ...]) -> Parameter:
    from optuna.distributions import CategoricalDistribution

    plain = all(choice is None or isinstance(choice, (bool, int, float, str)) for choice in choices)
    if plain and len(set(choices)) == len(choices):  # 1, 1.0 and True are one to Optuna
        return Parameter(path, CategoricalDistribution(choices))
    return Parameter(path, CategoricalDistribution(range(len(choices))), choices=choices)
