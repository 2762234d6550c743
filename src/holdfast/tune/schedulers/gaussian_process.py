"""A Gaussian process over hyper-parameters whose effect changes with time, and the point that looks best by it.

The kernel is squared-exponential in the parameters and in the score that a trial had before, and fades with time by
``(1 - epsilon) ** (distance / 2)``. The point is the one with the largest upper confidence bound; points that are being
tried already make their surroundings certain, so that a batch spreads out.

See "Time-Varying Gaussian Process Bandit Optimization" and "Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .pb2 import Observation

Array = Any
# Of variance, length scale, epsilon and noise, by their logarithms.
_USUAL = np.log([1.0, 1.0, 0.1, 0.01])
_LOWEST = np.log([0.05, 0.01, 1e-3, 1e-4])
_HIGHEST = np.log([20.0, 10.0, 0.5, 1.0])
_SPREAD = 1.5


def suggest(
    observations: Sequence[Observation],
    under_way: Sequence[Sequence[float]],
    time: float,
    score: float,
    dimensions: int,
    seed: int,
) -> list[float]:
    """The parameters, each in 0 to 1, with which a trial at that time and with that score should continue."""
    generator = np.random.Generator(np.random.PCG64(seed))
    if not observations:
        return [float(value) for value in generator.uniform(size=dimensions)]
    scores = np.array([*(o.score for o in observations), score])
    scaled = (scores - scores.min()) / (np.ptp(scores) or 1.0)
    times = np.array([o.time for o in observations])
    points = np.column_stack([times, scaled[:-1], np.array([o.parameters for o in observations])])
    gains = np.array([o.gain for o in observations])
    gains = np.clip((gains - gains.mean()) / (gains.std() or 1.0), -2.0, 2.0)
    hyper = _fitted(points, gains, generator)
    context = np.array([time, scaled[-1]])
    blocked = np.array([[*context, *parameters] for parameters in under_way]).reshape(-1, dimensions + 2)
    process = _Process(points, gains, blocked, hyper)
    return [float(value) for value in _best_point(process, context, dimensions, generator)]


def _kernel(a: Array, b: Array, hyper: Array) -> Array:
    variance, length, epsilon, _ = np.exp(hyper)
    apart = np.abs(a[:, None, 0] - b[None, :, 0])
    squares = ((a[:, None, 1:] - b[None, :, 1:]) ** 2).sum(-1)
    return variance * np.exp(-squares / length) * (1.0 - epsilon) ** (apart / 2.0)


def _fitted(points: Array, gains: Array, generator: Array) -> Array:
    """The most probable hyperparameters of the kernel: a wide search, then a closer one around the best.

    The prior favours usual values; otherwise few observations would often be mistaken for noise.
    """

    def plausibility(hyper: Array) -> float:
        return _log_likelihood(points, gains, hyper) - 0.5 * float((((hyper - _USUAL) / _SPREAD) ** 2).sum())

    best, found = _USUAL, plausibility(_USUAL)
    for centre, spread, count in ((_USUAL, _SPREAD, 60), (None, 0.5, 20), (None, 0.2, 20)):
        steps = generator.normal(0.0, spread, size=(count, len(_USUAL)))
        for candidate in np.clip((best if centre is None else centre) + steps, _LOWEST, _HIGHEST):
            value = plausibility(candidate)
            if value > found:
                best, found = candidate, value
    return best


def _log_likelihood(points: Array, gains: Array, hyper: Array) -> float:
    try:
        factor = np.linalg.cholesky(_kernel(points, points, hyper) + math.exp(hyper[3]) * np.eye(len(points)))
    except np.linalg.LinAlgError:
        return -math.inf
    solved = np.linalg.solve(factor, gains)
    return float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum())


class _Process:
    """The mean comes from the observations, the variance also from the running trials."""

    def __init__(self, points: Array, gains: Array, blocked: Array, hyper: Array) -> None:
        self._hyper = hyper
        self._points = points
        self._known = np.vstack([points, blocked])
        noise = math.exp(hyper[3])
        self._weights = np.linalg.solve(_kernel(points, points, hyper) + noise * np.eye(len(points)), gains)
        self._inverse = np.linalg.inv(_kernel(self._known, self._known, hyper) + noise * np.eye(len(self._known)))
        self._trust = math.sqrt(0.2 + max(0.0, math.log(0.4 * len(points))))

    def upper_bound(self, points: Array) -> Array:
        mean = _kernel(points, self._points, self._hyper) @ self._weights
        across = _kernel(points, self._known, self._hyper)
        variance = math.exp(self._hyper[0]) - ((across @ self._inverse) * across).sum(-1)
        return mean + self._trust * np.sqrt(np.maximum(variance, 0.0))


def _best_point(process: _Process, context: Array, dimensions: int, generator: Array) -> Array:
    """Look everywhere, then closer and closer around the best."""
    candidates = generator.uniform(size=(500, dimensions))
    for spread in (0.1, 0.03, 0.01, 0.0):
        full = np.column_stack([np.tile(context, (len(candidates), 1)), candidates])
        best = candidates[int(np.argmax(process.upper_bound(full)))]
        near = best + generator.normal(0.0, spread, size=(100, dimensions))
        candidates = np.clip(np.vstack([best, near]), 0.0, 1.0)
    return best
