"""Counts and best results of an experiment's trials, updated with each result and each end.

There may be 100,000 trials, so nothing here ever loops over all of them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.core.experiment.trial import Trial
from holdfast.core.metric_names import metric_number
from holdfast.tune.progress_reporter import TrialRow
from holdfast.tune.result_metrics import TRAINING_ITERATION
from holdfast.tune.schedulers.trial_scheduler import ERROR, RUNNING

KEPT = 20  # rows of a table that is read at the end of an experiment


class Look(NamedTuple):
    """The state of the trials at one moment."""

    counts: dict[str, int]
    best: TrialRow | None
    rows: tuple[TrialRow, ...]  # some of the running trials


class BestResult:
    """The best of all results so far. It sees every result, also those of earlier drivers, so it never gets worse."""

    def __init__(self, metric: str | None, mode: str | None) -> None:
        self.metric, self.mode = metric, mode
        self.row: TrialRow | None = None
        self._score = -math.inf

    def note(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """Called for every result, so it must be cheap."""
        score = score_of(result, self.metric, self.mode)
        if score is not None and score > self._score:
            self._score, self.row = score, row_of(trial)._replace(metrics=result)


class TrialTally:
    """Without a metric and a mode there is no best trial, and the trials that ended last are kept instead."""

    def __init__(self, best: BestResult) -> None:
        self.best, self.metric, self.mode = best, best.metric, best.mode
        self.ended: Counter[str] = Counter()  # by status
        self.failed: list[TrialRow] = []  # the trials that failed first
        self._recent: deque[TrialRow] = deque(maxlen=KEPT)
        self._top: list[tuple[float, int, TrialRow]] = []  # a heap with the worst first
        self._order = 0

    @property
    def count(self) -> int:
        return sum(self.ended.values())

    def add(self, trial: Trial) -> None:
        """A trial has ended."""
        self.ended[trial.status] += 1
        row = row_of(trial)
        self._recent.append(row)
        if trial.status == ERROR and len(self.failed) < KEPT:
            self.failed.append(row)
        score = score_of(row.metrics, self.metric, self.mode)
        if score is not None:
            self._order -= 1  # the first of several equal scores is the best
            entry = (score, self._order, row)
            (heapq.heappush if len(self._top) < KEPT else heapq.heappushpop)(self._top, entry)

    def kept(self) -> list[TrialRow]:
        """The best trials, best first; without a metric, the trials that ended last, in order."""
        if self._top:
            return [row for _, _, row in sorted(self._top, key=lambda entry: entry[:2], reverse=True)]
        return list(self._recent)

    def look(self, live: Iterable[Trial], shown: int) -> Look:
        """``live`` are those that have not ended."""
        counts: Counter[str] = Counter()
        rows: list[TrialRow] = []
        for trial in live:
            counts[trial.status] += 1
            if trial.status == RUNNING and len(rows) < shown:
                rows.append(row_of(trial))
        return Look(dict(counts + self.ended), self.best.row, tuple(rows))


def score_of(result: Mapping[str, Any], metric: str | None, mode: str | None) -> float | None:
    """The higher the better; None if the result has no such number."""
    if metric is None or mode is None or (value := metric_number(result, metric)) is None:
        return None
    return value if mode == "max" else -value


def row_of(trial: Trial) -> TrialRow:
    """Has the parameters that are searched, or all of them if none is."""
    return TrialRow(trial.name, trial.status, trial.evaluated_params or trial.config, trial.last_result, trial.error)


def iteration(row: TrialRow) -> int | None:
    found = row.metrics.get(TRAINING_ITERATION)
    return found if isinstance(found, int) else None
