"""The interface to the objects that decide about trials: the scheduler, the searcher and the stopper.

They are objects of the user with their own state. They receive every durable event in the order of the journal, live
and in a replay, so a fresh one that receives the same events has the same state. Their answers in a live experiment are
journalled with the event, and a replay uses those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.scheduler_requests import AnyRequest
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import Trial

Requests = Sequence[AnyRequest]


class Policy:
    """A policy that is asked nothing, for readers of a journal."""

    needs_population: bool = False  # whether all trials are added at first, not only when there is free capacity

    def suggest(self, number: int) -> ev.Added | Literal["later", "finished"]:
        """The next trial, the experiment's ``number`` from 0."""
        return "finished"

    def choose(self, state: ExperimentState) -> str | None:
        """The trial to start or resume next. Asking changes nothing."""
        return None

    def free_until(self, trial_id: str, iteration: int) -> int:
        """The last later report before which no other answer than CONTINUE can come."""
        return iteration

    def stops_all(self) -> bool:
        return False

    def searched(self, config: dict[str, Any]) -> dict[str, Any]:
        """The part of a config that the experiment searches, by flat names."""
        return {}

    def added(self, state: ExperimentState, trial: Trial, event: ev.Added, is_replay: bool) -> Requests:
        return ()

    def resumed(self, state: ExperimentState, trial: Trial) -> Requests:
        return ()

    def removed(self, state: ExperimentState, trial: Trial) -> Requests:
        """The trial has not ended and starts over."""
        return ()

    def reported(self, state: ExperimentState, trial: Trial) -> ev.Answer:
        """What happens to the trial after its ``last_result``."""
        return ev.CONTINUE

    def paused(self, trial: Trial) -> None: ...

    def unpaused(self, trial: Trial) -> None: ...

    def ended(self, state: ExperimentState, trial: Trial, was_running: bool) -> Requests:
        return ()

    def idled(self, state: ExperimentState) -> Requests:
        return ()
