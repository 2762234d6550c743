"""Where the value of one hyper-parameter comes from.

A domain is a frozen value: it can be pickled, compared and described as JSON. All randomness comes in as an argument,
and only its ``random()`` is used, whose sequence Python guarantees for a seed, so that a seed gives the same values
under every version of Python. Anything with a ``random()`` serves: ``random.Random``, numpy's generators.
"""

from __future__ import annotations

import inspect
import math
import operator
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol

from .samplers import BaseSampler, LogUniform, NormalSampler, Quantized, Sampler, Uniform


class RandomSource(Protocol):
    def random(self) -> float: ...


RandomState = RandomSource | int | None


def source_of(random_state: RandomState) -> RandomSource:
    """The source itself, one for a seed, or Python's global one, which ``random.seed`` governs."""
    if random_state is None:
        return _GLOBAL
    if hasattr(random_state, "random"):
        return random_state
    try:
        return random.Random(operator.index(random_state))
    except TypeError:
        raise TypeError(f"random_state={random_state!r}: pass an int, a random.Random or a numpy generator") from None


class _Global:
    random = staticmethod(random.random)


_GLOBAL = _Global()


class Domain:
    """A source of values. Each subclass defines how one is drawn, and which values belong to it."""

    kind = "domain"

    def draw(self, source: RandomSource, config: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def is_valid(self, value: Any) -> bool:
        """Return whether this domain could have drawn the value."""
        raise NotImplementedError

    def sample(self, config: Mapping[str, Any] | None = None, size: int = 1, random_state: RandomState = None) -> Any:
        """Draw one value, or a list of values with ``size`` above 1."""
        source = source_of(random_state)
        values = [self.draw(source, config or {}) for _ in range(size)]
        return values if size > 1 else values[0]

    def get_sampler(self) -> Sampler:
        """Return how it draws, in Ray's terms, for searchers that ask."""
        return BaseSampler()

    def is_grid(self) -> bool:
        return False  # a grid is not a domain: ``grid_search``

    def is_function(self) -> bool:
        return False

    def describe(self) -> dict[str, Any]:
        """Return the domain as JSON."""
        return {"domain": self.kind, **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]

    @property
    def domain_str(self) -> str:
        """The content as Ray writes it: "(0, 1)" or "['a', 'b']"."""
        if isinstance(self, Float | Integer):
            return f"({self.lower}, {self.upper})"
        if isinstance(self, Categorical):
            return str(list(self.categories))
        return f"{self.func}()" if isinstance(self, Function) else "(unknown)"


@dataclass(frozen=True)
class Float(Domain):
    """Real numbers from ``lower`` to ``upper``; with ``q``, its multiples, both bounds included."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None
    kind = "float"

    def draw(self, source: RandomSource, config: Mapping[str, Any]) -> float:
        value = _between(source, self.lower, self.upper, self.log)
        return min(max(value if self.q is None else _multiple(value, self.q), self.lower), self.upper)

    def is_valid(self, value: Any) -> bool:
        return _is_number(value) and self.lower <= value <= self.upper and _is_multiple(value, self.q)

    def uniform(self) -> Float:
        self._check_bounded("uniform")
        return replace(self, log=False)

    def loguniform(self, base: Any = None) -> Float:
        self._check_bounded("loguniform")
        if self.lower <= 0:
            raise ValueError(f"Float(lower={self.lower!r}).loguniform(): lower must be greater than 0")
        return replace(self, log=True)

    def _check_bounded(self, method: str) -> None:
        """``Float(None, None).normal()`` is how Ray's scripts write a normal distribution."""
        if self.lower is None or self.upper is None:
            raise ValueError(f"Float({self.lower!r}, {self.upper!r}).{method}(): both bounds must be numbers")

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Normal:
        return Normal(mean, sd)

    def quantized(self, q: float) -> Float:
        if not (_is_multiple(self.lower, q) and _is_multiple(self.upper, q)):
            raise ValueError(f"Float({self.lower!r}, {self.upper!r}).quantized(q={q!r}): bounds must be multiples of q")
        return replace(self, q=q)

    def cast(self, value: Any) -> float:
        return float(value)

    def get_sampler(self) -> Sampler:
        return _quantized(LogUniform() if self.log else Uniform(), self.q)


@dataclass(frozen=True)
class Normal(Domain):
    """Real numbers around ``mean``; with ``q``, its multiples."""

    mean: float = 0.0
    sd: float = 1.0
    q: float | None = None
    kind = "normal"

    def draw(self, source: RandomSource, config: Mapping[str, Any]) -> float:
        radius = math.sqrt(-2.0 * math.log(1.0 - source.random()))
        value = self.mean + self.sd * radius * math.cos(2.0 * math.pi * source.random())
        return value if self.q is None else _multiple(value, self.q)

    def is_valid(self, value: Any) -> bool:
        return _is_number(value) and math.isfinite(value) and _is_multiple(value, self.q)

    def quantized(self, q: float) -> Normal:
        return replace(self, q=q)

    def cast(self, value: Any) -> float:
        return float(value)

    def get_sampler(self) -> Sampler:
        return _quantized(NormalSampler(self.mean, self.sd), self.q)


@dataclass(frozen=True)
class Integer(Domain):
    """Whole numbers from ``lower`` to below ``upper``; with ``q`` above 1, its multiples up to ``upper`` itself."""

    lower: int
    upper: int
    log: bool = False
    q: int = 1
    kind = "integer"

    @property
    def lowest(self) -> int:
        """The smallest value that can be drawn."""
        return -(-self.lower // self.q) * self.q

    @property
    def highest(self) -> int:
        """The largest value that can be drawn."""
        return self.upper - 1 if self.q == 1 else self.upper // self.q * self.q

    def draw(self, source: RandomSource, config: Mapping[str, Any]) -> int:
        first, last = self.lowest // self.q, self.highest // self.q
        index = math.floor(_between(source, first, last + 1, self.log))
        return min(max(index, first), last) * self.q

    def is_valid(self, value: Any) -> bool:
        return _is_number(value) and self.lowest <= value <= self.highest and value % self.q == 0

    def uniform(self) -> Integer:
        return replace(self, log=False)

    def loguniform(self, base: Any = None) -> Integer:
        if self.lower <= 0:
            raise ValueError(f"Integer(lower={self.lower!r}).loguniform(): lower must be greater than 0")
        return replace(self, log=True)

    def quantized(self, q: int) -> Integer:
        return replace(self, q=q)

    def cast(self, value: Any) -> int:
        return int(value)

    def get_sampler(self) -> Sampler:
        return _quantized(LogUniform() if self.log else Uniform(), None if self.q == 1 else self.q)


@dataclass(frozen=True)
class Categorical(Domain):
    """One of the given values, all equally likely."""

    categories: tuple[Any, ...]
    kind = "categorical"

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, index: int) -> Any:
        return self.categories[index]

    def draw(self, source: RandomSource, config: Mapping[str, Any]) -> Any:
        return self.categories[int(source.random() * len(self.categories))]

    def is_valid(self, value: Any) -> bool:
        return any(_same(value, category) for category in self.categories)

    def uniform(self) -> Categorical:
        return self

    def grid(self) -> dict[str, list[Any]]:
        """Return ``grid_search`` of the values."""
        return {"grid_search": list(self.categories)}

    def get_sampler(self) -> Sampler:
        return Uniform()


@dataclass(frozen=True)
class Function(Domain):
    """The return value of the user's function: of nothing, or of the configuration as far as it reads it."""

    func: Callable[..., Any]
    kind = "function"

    def __post_init__(self) -> None:
        if not callable(self.func):
            raise TypeError(f"sample_from(func={self.func!r}): pass a function")
        if not self.takes_config and not _can_be_called(self.func):
            raise ValueError(
                f"sample_from(func={self.func!r}): the function must be callable with one argument or none"
            )

    @property
    def takes_config(self) -> bool:
        return _can_be_called(self.func, {})

    def draw(self, source: RandomSource, config: Mapping[str, Any]) -> Any:
        return self.func(config) if self.takes_config else self.func()

    def is_valid(self, value: Any) -> bool:
        return True

    def is_function(self) -> bool:
        return True


def _can_be_called(func: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(func).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # some built-in functions have no signature to look at
        return bool(arguments)
    return True


def _between(source: RandomSource, lower: float, upper: float, log: bool) -> float:
    if log:
        return math.exp(_between(source, math.log(lower), math.log(upper), log=False))
    part = source.random()
    return lower * (1.0 - part) + upper * part  # upper - lower may be more than a float can hold


def _multiple(value: float, q: float) -> float:
    """The nearest multiple of ``q`` as it is written: of 0.1 it is 0.3, never 0.30000000000000004."""
    return float(Decimal(repr(q)) * round(value / q))


def _is_multiple(value: float, q: float | None) -> bool:
    return q is None or math.isclose(value / q, round(value / q), abs_tol=1e-9)


def _quantized(sampler: Sampler, q: float | None) -> Sampler:
    return sampler if q is None else Quantized(sampler, q)


def _is_number(value: Any) -> bool:
    """A real number, numpy's included."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _same(value: Any, category: Any) -> bool:
    if value is category:
        return True
    try:
        return bool(value == category)
    except (TypeError, ValueError, RuntimeError):  # arrays and tensors compare by element
        return False


def categories_of(argument: str, values: Any) -> tuple[Any, ...]:
    """The values of a choice or a grid, from any iterable."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{argument}={values!r}): pass a list of values")
    found = tuple(values)
    if not found:
        raise ValueError(f"{argument}={values!r}): pass at least one value")
    return found
