"""How a domain draws, described in Ray's terms. The domain itself does the drawing."""

from __future__ import annotations

from dataclasses import dataclass


class Sampler:
    """The base class."""


class BaseSampler(Sampler):
    """Neither uniform nor anything else with a name: a function's."""


@dataclass(frozen=True)
class Uniform(Sampler):
    """All values are equally likely."""


@dataclass(frozen=True)
class LogUniform(Sampler):
    """All orders of magnitude are equally likely. ``base`` makes no difference to that."""

    base: float = 10


@dataclass(frozen=True)
class NormalSampler(Sampler):
    """Normally distributed."""

    mean: float = 0.0
    sd: float = 0.0

    def __post_init__(self) -> None:
        if not self.sd > 0:
            raise ValueError(f"Normal(sd={self.sd!r}): pass a standard deviation greater than 0")


@dataclass(frozen=True)
class Grid(Sampler):
    """One after the other."""


@dataclass(frozen=True)
class Quantized(Sampler):
    """Multiples of ``q``."""

    sampler: Sampler
    q: float

    def get_sampler(self) -> Sampler:
        return self.sampler
