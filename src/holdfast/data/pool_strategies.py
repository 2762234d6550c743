"""Small classes that Ray's scripts pass: how many instances of a class compute, and how files are shuffled."""

from __future__ import annotations

from dataclasses import dataclass

NodeIdStr = str  # of Ray's annotations


@dataclass(frozen=True)
class ActorPoolStrategy:
    """Create ``size`` instances of a class, which run in parallel. With a range, the largest number is used."""

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None


@dataclass(frozen=True)
class TaskPoolStrategy:
    """Make ``size`` calls of a function in parallel."""

    size: int | None = None


@dataclass(frozen=True)
class FileShuffleConfig:
    """Shuffle the blocks when files are read (``shuffle=``). The seed determines the order, which differs in each
    epoch.
    """

    seed: int | None = None


@dataclass(frozen=True)
class RandomSeedConfig:
    """Shuffle in a different order in every epoch, determined by the seed and the number of the epoch."""

    seed: int | None = None
    reseed_after_execution: bool = True
