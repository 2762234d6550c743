"""One bracket of HyperBand: successive halving of a fixed number of trials.

The bracket ``s`` takes ``n = ceil((s_max + 1) / (s + 1) * eta ** s)`` trials. At stage ``i`` they train up to ``max_t /
eta ** (s - i)``, and the best ``n / eta ** (i + 1)`` of them continue to the next stage; the last one is at ``max_t``
itself. A trial at the end of a stage waits there for the others.

See "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", algorithm 1.
"""

from __future__ import annotations

import math
from fractions import Fraction

from .scoring import WORST, ScoreReading


def largest_bracket(max_t: float, eta: float) -> int:
    """``s_max``: how often ``max_t`` can be divided by ``eta`` before it is below 1."""
    s = 0
    while eta ** (s + 1) <= max_t:
        s += 1
    return s


class HalvingBracket:
    """``round`` is the number of the round of HyperBand that it belongs to. Without ``ends`` nothing waits at its end:
    trials that have come to the last stage continue."""

    def __init__(self, s: int, s_max: int, max_t: float, eta: float, round: int = 0, ends: bool = True) -> None:
        self.round = round
        exact = Fraction(eta)  # in floats 5 / 3 * 3 may end up above 5, and rounding up would make it 6
        size = math.ceil(Fraction(s_max + 1, s + 1) * exact**s)
        self.sizes = [max(1, math.floor(size / exact**i)) for i in range(s + 1)]
        self.milestones: list[float] = [max(1, math.floor(Fraction(max_t) / exact ** (s - i))) for i in range(s)] + [
            max_t
        ]
        spans = (end - start for start, end in zip([0, *self.milestones], self.milestones, strict=False))
        self._total_work = sum(size * span for size, span in zip(self.sizes, spans, strict=True))
        self._work = 0.0
        if not ends:
            self.milestones[-1] = math.inf
        self.stage = 0
        self.added = 0
        self.trials: dict[str, ScoreReading] = {}

    @property
    def milestone(self) -> float:
        return self.milestones[self.stage]

    @property
    def is_last_stage(self) -> bool:
        return self.stage == len(self.milestones) - 1

    @property
    def is_open(self) -> bool:
        """Whether it accepts more trials. After the first halving it does not: late trials could not be compared."""
        return self.stage == 0 and self.added < self.sizes[0]

    @property
    def progress(self) -> float:
        """The part of all its work that has been done."""
        return self._work / self._total_work

    def add(self, trial_id: str) -> None:
        self.added += 1
        self.trials[trial_id] = ScoreReading(0.0, WORST)

    def update(self, trial_id: str, reading: ScoreReading) -> None:
        self._work += max(0.0, reading.time - self.trials[trial_id].time)
        self.trials[trial_id] = reading

    def waits(self, trial_id: str) -> bool:
        return self.trials[trial_id].time >= self.milestone

    def all_wait(self) -> bool:
        return bool(self.trials) and all(map(self.waits, self.trials))

    def halve(self) -> list[str]:
        """Continue to the next stage with the best; returns the others. With equal scores, those that came first
        stay."""
        self.stage += 1
        ranked = sorted(self.trials, key=lambda trial_id: -self.trials[trial_id].score)
        dropped = ranked[self.sizes[self.stage] :]
        for trial_id in dropped:
            del self.trials[trial_id]
        return dropped
