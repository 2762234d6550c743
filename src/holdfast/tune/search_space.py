"""The functions with which a script defines its search space, and the readers of a space.

Names, arguments and defaults are Ray Tune's. A mistake in an argument is found here, when the space is written, and
the message names the function and the argument.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

from .space.domains import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    Normal,
    RandomSource,
    RandomState,
    categories_of,
    source_of,
)
from .space.resolve import DependencyCycleError
from .space.tree import unresolved
from .space.variants import Variant, count_variants, describe, flat_keys, flatten, format_vars, generate

__all__ = [
    "Categorical",
    "DependencyCycleError",
    "Domain",
    "Float",
    "Function",
    "Integer",
    "Normal",
    "RandomSource",
    "RandomState",
    "Variant",
    "choice",
    "count_variants",
    "describe",
    "flat_keys",
    "flatten",
    "format_vars",
    "generate",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "source_of",
    "uniform",
    "unresolved",
]

_UNSET = object()


def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Try each of the values, in combination with all other grids. ``num_samples`` repeats the whole grid."""
    return {"grid_search": list(categories_of("grid_search(values", values))}


def choice(categories: Sequence[Any]) -> Categorical:
    """Draw one of the values, all equally likely."""
    return Categorical(categories_of("choice(categories", categories))


def sample_from(func: Callable[..., Any]) -> Function:
    """Call ``func`` for a value. It may take the configuration, and is called after the values that it uses are drawn.

    Both ``lambda config: config["a"] * 2`` and ``lambda spec: spec.config.a * 2`` work.
    """
    return Function(func)


def uniform(lower: float, upper: float) -> Float:
    """Draw a float between ``lower`` and ``upper``, all equally likely."""
    return _float("uniform", lower, upper)


def quniform(lower: float, upper: float, q: float) -> Float:
    """Like ``uniform``, rounded to multiples of ``q``. ``upper`` is included."""
    return _float("quniform", lower, upper, q=q)


def loguniform(lower: float, upper: float, base: object = _UNSET) -> Float:
    """Draw a float between ``lower`` and ``upper``, uniform on a logarithmic scale."""
    return _float("loguniform", lower, upper, log=True, base=base)


def qloguniform(lower: float, upper: float, q: float, base: object = _UNSET) -> Float:
    """Like ``loguniform``, rounded to multiples of ``q``. ``upper`` is included."""
    return _float("qloguniform", lower, upper, log=True, q=q, base=base)


def randint(lower: int, upper: int) -> Integer:
    """Draw an integer from ``lower`` up to, but not including, ``upper``."""
    return _integer("randint", lower, upper)


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """Like ``randint``, rounded to multiples of ``q``. ``upper`` is included, except for ``q=1``."""
    return _integer("qrandint", lower, upper, q=q)


def lograndint(lower: int, upper: int, base: object = _UNSET) -> Integer:
    """Draw an integer from ``lower`` up to, but not including, ``upper``, uniform on a logarithmic scale."""
    return _integer("lograndint", lower, upper, log=True, base=base)


def qlograndint(lower: int, upper: int, q: int, base: object = _UNSET) -> Integer:
    """Like ``lograndint``, rounded to multiples of ``q``. ``upper`` is included, except for ``q=1``."""
    return _integer("qlograndint", lower, upper, log=True, q=q, base=base)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """Draw from a normal distribution."""
    return _normal("randn", mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """Like ``randn``, rounded to multiples of ``q``."""
    return _normal("qrandn", mean, sd, q)


def _float(name: str, lower: Any, upper: Any, *, log: bool = False, q: Any = None, base: object = _UNSET) -> Float:
    low, high = _number(name, "lower", lower), _number(name, "upper", upper)
    step = None if q is None else _number(name, "q", q)
    _check_range(name, low, high, step, log, base)
    for argument, bound in (("lower", low), ("upper", high)):
        if step is not None and not math.isclose(bound / step, round(bound / step)):
            raise ValueError(f"{name}({argument}={bound!r}, q={step!r}): the bounds must be multiples of q")
    return Float(low, high, log, step)


def _integer(name: str, lower: Any, upper: Any, *, log: bool = False, q: Any = 1, base: object = _UNSET) -> Integer:
    low, high, step = (_whole(name, *pair) for pair in (("lower", lower), ("upper", upper), ("q", q)))
    _check_range(name, low, high, step, log, base)
    domain = Integer(low, high, log, step)
    if domain.lowest > domain.highest:
        remedy = "no multiple of q is between them" if step > 1 else "upper is not included, so it must be above lower"
        raise ValueError(f"{name}(lower={low}, upper={high}): {remedy}")
    return domain


def _normal(name: str, mean: Any, sd: Any, q: Any = None) -> Normal:
    middle, spread = _number(name, "mean", mean), _number(name, "sd", sd)
    if spread <= 0:
        raise ValueError(f"{name}(sd={sd!r}): must be greater than 0")
    step = None if q is None else _number(name, "q", q)
    if step is not None and step <= 0:
        raise ValueError(f"{name}(q={q!r}): must be greater than 0")
    return Normal(middle, spread, step)


def _check_range(name: str, lower: float, upper: float, q: float | None, log: bool, base: object) -> None:
    if base is not _UNSET:
        warnings.warn(f"{name}(base={base!r}): it changes nothing; leave it out", DeprecationWarning, stacklevel=4)
    if q is not None and q <= 0:
        raise ValueError(f"{name}(q={q!r}): must be greater than 0")
    if log and lower <= 0:
        raise ValueError(f"{name}(lower={lower!r}): must be greater than 0; pass the bound itself, not its logarithm")
    if lower > upper:
        raise ValueError(f"{name}(lower={lower!r}, upper={upper!r}): lower must not be above upper")


def _number(name: str, argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}({argument}={value!r}): pass a number")
    if not math.isfinite(value):
        raise ValueError(f"{name}({argument}={value!r}): pass a finite number")
    return float(value)


def _whole(name: str, argument: str, value: Any) -> int:
    """A whole number; one that is written as a float, such as 1e4, is one too."""
    if _number(name, argument, value) != int(value):
        raise ValueError(f"{name}({argument}={value!r}): pass a whole number")
    return int(value)
