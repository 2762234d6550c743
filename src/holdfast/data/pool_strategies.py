"""Small classes that Ray's scripts pass: how many instances of a class compute, and how files are shuffled."""

from __future__ import annotations

from dataclasses import dataclass

NodeIdStr = str  # of Ray's annotations


@dataclass(frozen=True)
class ActorPoolStrategy:
    """``size`` instances of a class at the same time; of a range, the largest."""

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None


@dataclass(frozen=True)
class TaskPoolStrategy:
    """``size`` calls of a function at the same time."""

    size: int | None = None


@dataclass(frozen=True)
class FileShuffleConfig:
    """For ``shuffle=`` when files are read: the blocks in an order derived from the seed, different in each epoch."""

    seed: int | None = None


@dataclass(frozen=True)
class RandomSeedConfig:
    """Every epoch has a different order, derived from the seed and its number."""

    seed: int | None = None
    reseed_after_execution: bool = True
