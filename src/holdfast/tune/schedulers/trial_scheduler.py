"""The base of all schedulers, and the simplest of them.

A scheduler is pure: no I/O, no clock, and randomness only from its seed. Its state is rebuilt by replaying the same
calls to a fresh one, so it is never stored. It sees trials through read-only views, keeps no view after a call, and
requests changes with its return value.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from holdfast.core.experiment.trial import ERROR, PAUSED, PENDING, RUNNING, TERMINATED
from holdfast.tune import saved_state
from holdfast.tune.recorded import Recorded

from .decision import Decision, Request


class TrialView(Protocol):
    """A trial as a scheduler sees it."""

    @property
    def trial_id(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def status(self) -> str: ...
    @property
    def last_result(self) -> Mapping[str, Any]:
        """The newest result, including the current one; empty before the first."""

    @property
    def checkpoint(self) -> int | None:
        """The number of its newest committed checkpoint."""

    @property
    def resources(self) -> Sequence[Mapping[str, float]]:
        """The bundles that it runs with."""


class ExperimentView(Protocol):
    """An experiment as a scheduler sees it. Trials come in the order in which they were added."""

    def get_trials(self) -> Sequence[TrialView]:
        """Return all trials."""

    def get_live_trials(self) -> Sequence[TrialView]:
        """Return the trials that have not finished. Schedulers iterate over these, so finished trials cost nothing."""

    def get_trial(self, trial_id: str) -> TrialView | None:
        """Return the trial with this id."""

    @property
    def total_resources(self) -> Mapping[str, float]: ...


Requests = Sequence[Request] | None
__all__ = [
    "ERROR",
    "PAUSED",
    "PENDING",
    "RUNNING",
    "TERMINATED",
    "ExperimentView",
    "FIFOScheduler",
    "Requests",
    "TrialScheduler",
    "TrialView",
    "first_waiting",
]


class TrialScheduler(Recorded):
    """The base class of schedulers. By default every method runs trials in order; override only what you need.

    Each trial is added once (and again if it is resumed after it had failed for good), and finishes with exactly one
    call: ``on_trial_complete`` (it finished by itself, by a stopper or by a STOP), ``on_trial_error`` (it failed for
    good; retries cause no call, but may repeat results since the last checkpoint) or ``on_trial_remove`` (it was
    stopped while it was not running). All methods except ``choose_trial_to_run`` and ``debug_string`` may change the
    scheduler's state, and are repeated on restore.
    """

    CONTINUE: ClassVar[Decision] = Decision("CONTINUE")
    PAUSE: ClassVar[Decision] = Decision("PAUSE")
    STOP: ClassVar[Decision] = Decision("STOP")

    accepts_searcher: bool = True  # whether a search algorithm may make the configurations
    needs_population: bool = False  # whether all trials are to be added at first, not only when a slot gets free

    _metric: str | None = None
    _mode: str | None = None
    _seed: int | None = None
    _generator: random.Random | None = None

    @property
    def metric(self) -> str | None:
        return self._metric

    @property
    def mode(self) -> str | None:
        return self._mode

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Use the settings of ``TuneConfig``. Return False if the scheduler has its own.

        ``seed`` in ``spec`` is the experiment's. It is used if the scheduler has no seed.
        """
        if (metric and self._metric) or (mode and self._mode):
            return False
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        if self._seed is None:
            self._seed = spec.get("seed")
        return True

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        """Called when a trial has been created and waits to run."""
        return ()

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        """Called when a running trial has reported. Return CONTINUE, PAUSE or STOP, or a ``Decision``."""
        return self.CONTINUE

    def next_decision(self, trial_id: str, iteration: int) -> float:
        """Return the next ``training_iteration`` at which the answer may be anything but CONTINUE.

        Until then the trial continues without waiting for an answer. A class that overrides only ``on_trial_result`` is
        asked about each result.
        """
        return iteration + 1

    def on_trial_complete(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Requests:
        """Called when a trial has finished without an error, with its last result."""
        return ()

    def on_trial_error(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        """Called when a trial has failed and will not be retried."""
        return ()

    def on_trial_remove(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        """Called when a trial was stopped while it was paused or waiting to run."""
        return ()

    def on_idle(self, experiment: ExperimentView) -> Requests:
        """Called when nothing runs, ``choose_trial_to_run`` returned None, and no trial can be added.

        Release trials here that wait for each other. If that changes nothing, the experiment ends the paused trials.
        """
        return ()

    def choose_trial_to_run(self, experiment: ExperimentView) -> TrialView | None:
        """Return the trial to start or resume next, or None. This must not change the scheduler's state."""
        return first_waiting(experiment.get_live_trials())

    def get_state(self) -> dict[str, Any]:
        """Return the state, for ``set_state`` of an equal scheduler in this process."""
        return copy.deepcopy(self.__dict__)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over the state that ``get_state`` of an equal scheduler returned."""
        self.__dict__.update(copy.deepcopy(dict(state)))

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a JSON file. Experiments do not need such a file: the journal restores their scheduler."""
        saved_state.save(self, checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Load a saved state into a new scheduler with the same arguments, which then continues where the other one
        stopped.
        """
        saved_state.restore(self, checkpoint_path)

    def debug_string(self) -> str:
        """Return a line about the state, for the display."""
        return type(self).__name__

    @property
    def _source(self) -> random.Random:
        """All randomness comes from here, and only through ``random()``, whose sequence never changes."""
        if self._generator is None:
            self._generator = random.Random(self._seed or 0)
        return self._generator


def first_waiting(trials: Sequence[TrialView]) -> TrialView | None:
    paused = None
    for trial in trials:
        if trial.status == PENDING:
            return trial
        if trial.status == PAUSED and paused is None:
            paused = trial
    return paused


class FIFOScheduler(TrialScheduler):
    """Runs trials in order, each until it finishes."""

    def next_decision(self, trial_id: str, iteration: int) -> float:
        return math.inf
