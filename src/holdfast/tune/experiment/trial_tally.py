"""What a person wants to know of an experiment's trials, kept up as they end: there may be 100,000 of them, so nothing
here is ever counted over all."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.experiment.trial import Trial
from holdfast.core.metric_names import metric_number
from holdfast.tune.progress_reporter import TrialRow
from holdfast.tune.result_metrics import TRAINING_ITERATION
from holdfast.tune.schedulers.trial_scheduler import ERROR, RUNNING

KEPT = 20  # rows of a table that is read at the end of an experiment


class Look(NamedTuple):
    """The trials as they are at a moment."""

    counts: dict[str, int]
    best: TrialRow | None
    rows: tuple[TrialRow, ...]  # of some that run


class TrialTally:
    """Without ``metric`` and ``mode`` there is no best trial, and the last ones that ended are kept instead."""

    def __init__(self, metric: str | None, mode: str | None) -> None:
        self.metric, self.mode = metric, mode
        self.ended: Counter[str] = Counter()  # by status
        self.failed: list[TrialRow] = []  # the first ones
        self._recent: deque[TrialRow] = deque(maxlen=KEPT)
        self._top: list[tuple[float, int, TrialRow]] = []  # a heap, the least good first
        self._order = 0
        self._best: tuple[float, TrialRow] | None = None  # of all results so far, so that it never gets worse

    @property
    def count(self) -> int:
        return sum(self.ended.values())

    def add(self, trial: Trial) -> None:
        """A trial has ended."""
        self.ended[trial.status] += 1
        row = row_of(trial)
        self.note(trial)
        self._recent.append(row)
        if trial.status == ERROR and len(self.failed) < KEPT:
            self.failed.append(row)
        score = self._score(row)
        if score is not None:
            self._order -= 1  # of equals the first is the best
            entry = (score, self._order, row)
            (heapq.heappush if len(self._top) < KEPT else heapq.heappushpop)(self._top, entry)

    def kept(self) -> list[TrialRow]:
        """The best first; or the last that ended, in their order."""
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
            self.note(trial)
        return Look(dict(counts + self.ended), None if self._best is None else self._best[1], tuple(rows))

    def note(self, trial: Trial) -> None:
        """Its last result may be the best so far."""
        value = None if self.metric is None else self._sign(metric_number(trial.last_result, self.metric))
        if value is not None and (self._best is None or value > self._best[0]):
            self._best = value, row_of(trial)

    def _score(self, row: TrialRow) -> float | None:
        return None if self.metric is None else self._sign(metric_number(row.metrics, self.metric))

    def _sign(self, value: float | None) -> float | None:
        if value is None or self.mode is None:
            return None
        return value if self.mode == "max" else -value


def row_of(trial: Trial) -> TrialRow:
    """With the parameters that were searched; all, if none was."""
    return TrialRow(trial.name, trial.status, trial.evaluated_params or trial.config, trial.last_result, trial.error)


def iteration(row: TrialRow) -> int | None:
    found = row.metrics.get(TRAINING_ITERATION)
    return found if isinstance(found, int) else None
