"""Asynchronous successive halving (ASHA): at each rung a trial continues only if it is among the best so far.

Rung k of bracket s is at ``grace_period * reduction_factor ** (s + k)``. A trial that reaches a rung is compared once,
with the trials that reached it before. If its score is below the quantile ``1 - 1 / reduction_factor``, it is stopped.
Scores are kept sorted, so a decision costs the same with a hundred thousand trials.

See "A System for Massively Parallel Hyperparameter Tuning", https://arxiv.org/abs/1810.05934
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping
from typing import Any

from holdfast.train.checks import check_int, check_number
from holdfast.tune.result_metrics import TRAINING_ITERATION

from .decision import Decision
from .scoring import ScoreReading, ScoringScheduler
from .trial_scheduler import ExperimentView, Requests, TrialView


class AsyncHyperBandScheduler(ScoringScheduler):
    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode, seed)
        name = type(self).__name__
        check_number(f"{name}(max_t", max_t, above=0)
        check_number(f"{name}(grace_period", grace_period, above=0)
        check_number(f"{name}(reduction_factor", reduction_factor, above=1)
        check_int(f"{name}(brackets", brackets, least=1)
        if grace_period > max_t:
            raise ValueError(f"{name}(grace_period={grace_period!r}, max_t={max_t!r}): must not be above max_t")
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._brackets = [Bracket(grace_period, max_t, reduction_factor, s) for s in range(brackets)]
        self._bracket_of: dict[str, Bracket] = {}
        self._num_stopped = 0

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        self._check_objective()
        if trial.trial_id not in self._bracket_of:
            self._bracket_of[trial.trial_id] = self._draw_bracket()
        return ()

    def _draw_bracket(self) -> Bracket:
        """Choose a bracket. Each bracket is e times as likely as one with one rung less."""
        if len(self._brackets) == 1:
            return self._brackets[0]
        weights = [math.exp(len(bracket.rungs)) for bracket in self._brackets]
        mark = self._source.random() * sum(weights)
        for bracket, weight in zip(self._brackets, weights, strict=True):
            mark -= weight
            if mark < 0:
                return bracket
        return self._brackets[-1]

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        reading = self._read(trial, result)
        if isinstance(reading, Decision):
            return reading
        if reading.time >= self._max_t and self._stop_last_trials:
            return self._stop(f"reached max_t={self._max_t:g}")
        rung = self._bracket_of[trial.trial_id].rung_at(reading.time)
        if rung is None or trial.trial_id in rung.seen:
            return self.CONTINUE
        cutoff = rung.cutoff()
        rung.record(trial.trial_id, reading.score)
        if cutoff is not None and reading.score < cutoff:
            return self._stop(
                f"{self._shown(reading.score)} is beyond {self._shown(cutoff)} at rung {rung.milestone:g}"
            )
        return self.CONTINUE

    def next_decision(self, trial_id: str, iteration: int) -> float:
        if self._time_attr != TRAINING_ITERATION or trial_id not in self._bracket_of:
            return iteration + 1
        bracket = self._bracket_of[trial_id]
        reached = bracket.rung_at(iteration)
        if reached is not None and trial_id not in reached.seen:
            return iteration + 1
        ahead = [rung.milestone for rung in bracket.rungs if rung.milestone > iteration]
        return min([*ahead, self._max_t] if self._stop_last_trials else ahead, default=math.inf)

    def _stop(self, reason: str) -> Decision:
        self._num_stopped += 1
        return Decision("STOP", reason)

    def on_trial_complete(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Requests:
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if bracket is None:
            return ()
        reading = self._read(trial, result)
        if isinstance(reading, ScoreReading):
            rung = bracket.rung_at(reading.time)
            if rung is not None and trial.trial_id not in rung.seen:
                rung.record(trial.trial_id, reading.score)
        bracket.forget(trial.trial_id)
        return ()

    def on_trial_remove(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        bracket = self._bracket_of.pop(trial.trial_id, None)
        if bracket is not None:
            bracket.forget(trial.trial_id)
        return ()

    def debug_string(self) -> str:
        lines = [
            " | ".join(
                f"{rung.milestone:g}: {'none' if (cutoff := rung.cutoff()) is None else self._shown(cutoff)}"
                for rung in bracket.rungs
            )
            for bracket in self._brackets
        ]
        return "\n".join([f"{type(self).__name__}: {self._num_stopped} stopped", *lines])


ASHAScheduler = AsyncHyperBandScheduler


class Rung:
    def __init__(self, milestone: float, reduction_factor: float) -> None:
        self.milestone = milestone
        self.scores: list[float] = []  # sorted
        self.seen: set[str] = set()  # trials that were compared here and have not ended
        self._quantile = 1.0 - 1.0 / reduction_factor

    def cutoff(self) -> float | None:
        """The quantile of the scores, linear between two of them."""
        if not self.scores:
            return None
        position = self._quantile * (len(self.scores) - 1)
        below = self.scores[math.floor(position)]
        part = position - math.floor(position)
        if part == 0.0 or math.isinf(below):
            return below
        return below + part * (self.scores[math.floor(position) + 1] - below)

    def record(self, trial_id: str, score: float) -> None:
        self.seen.add(trial_id)
        insort(self.scores, score)


class Bracket:
    """The rungs of one bracket, lowest first. The bracket ``s`` starts at the rung ``s`` of the first one."""

    def __init__(self, grace_period: float, max_t: float, reduction_factor: float, s: int) -> None:
        self.rungs: list[Rung] = []
        milestone = grace_period * reduction_factor**s
        while milestone <= max_t * (1 + 1e-9):
            self.rungs.append(Rung(milestone, reduction_factor))
            milestone *= reduction_factor

    def rung_at(self, time: float) -> Rung | None:
        """The highest rung that has been reached; those below it are passed."""
        return next((rung for rung in reversed(self.rungs) if time >= rung.milestone), None)

    def forget(self, trial_id: str) -> None:
        for rung in self.rungs:
            rung.seen.discard(trial_id)
