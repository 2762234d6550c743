"""Delivers results and ends to callbacks and loggers, in the order of the journal, and keeps track of the progress.

The journal records the progress with its next write. Events that a killed driver had journalled and not delivered are
delivered by the next one, and some that it had delivered are delivered again.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, NamedTuple

from holdfast.core.experiment.events import CallbacksTold
from holdfast.core.experiment.records import entry_of
from holdfast.core.experiment.trial import Trial
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.experiment.trial_storage import JournalBatch


class Untold(NamedTuple):
    trial: Trial
    life: int  # the trial may start over before its end is delivered
    result: dict[str, Any] | None  # None for the end of the trial


class Backlog:
    """Events that an earlier driver may not have delivered, collected as its journal is replayed."""

    def __init__(self) -> None:
        self.untold: deque[Untold] = deque()
        self._is_marked = False  # whether the driver records its deliveries; drivers of earlier versions did not
        self._told = 0

    def begins(self, is_marked: bool) -> None:
        """A driver starts. It first delivers what earlier drivers have not delivered."""
        if not is_marked:
            self.untold.clear()
        self._is_marked, self._told = is_marked, 0

    def add(self, trial: Trial, result: dict[str, Any] | None) -> None:
        if self._is_marked:
            self.untold.append(Untold(trial, trial.life, result))

    def mark_told(self, count: int) -> None:
        while self._told < count and self.untold:
            self.untold.popleft()
            self._told += 1


class CallbackDelivery:
    def __init__(self, listeners: Listeners, batch: JournalBatch) -> None:
        self._listeners, self._batch = listeners, batch
        self._told = 0  # by this driver

    def catch_up(self, untold: deque[Untold]) -> None:
        """Deliver the events that an earlier driver may not have delivered."""
        for one in untold:
            self._batch.note((), partial(self._tell_again, one))

    def reported(self, trial: Trial) -> None:
        """Called when the event is journalled."""
        self._batch.note((), partial(self._tell, trial, trial.last_result))

    def reported_late(self, trial: Trial) -> None:
        """An earlier driver was about to journal it."""
        self._batch.note((), partial(self._tell_again, Untold(trial, trial.life, trial.last_result)))

    def ended(self, trial: Trial) -> None:
        self._told += 1
        if trial.results and not self._listeners.has_heard_of(trial):  # it ran only under an earlier driver
            self._listeners.started(trial)
        self._listeners.ended(trial)

    def turned(self) -> None:
        """A turn of the loop has ended, and loggers have written what they received."""
        if self._told:
            self._batch.mark = entry_of(CallbacksTold(self._told))

    def _tell(self, trial: Trial, result: dict[str, Any]) -> None:
        self._told += 1
        self._listeners.reported(trial, result)

    def _tell_again(self, one: Untold) -> None:
        self._told += 1
        if one.trial.life != one.life:
            return
        if not self._listeners.has_heard_of(one.trial):
            self._listeners.started(one.trial)
        if one.result is None:
            self._listeners.ended(one.trial)
        else:
            self._listeners.reported(one.trial, one.result)
