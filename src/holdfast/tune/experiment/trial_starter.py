"""Trials are started where there is room for them: asked of the searcher, placed, given another's checkpoint, begun."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from holdfast.core.experiment import events as ev
from holdfast.core.run import events as run_events
from holdfast.core.run.state import CheckpointRecord
from holdfast.driver.plan import Plan
from holdfast.engine.base import Inbox
from holdfast.errors import StorageError
from holdfast.settings import Settings
from holdfast.tune.experiment.capacity import PLAIN, BundlePlacement, Bundles, Shares
from holdfast.tune.experiment.exploit_checkpoint import adopt
from holdfast.tune.experiment.machine import Experiment
from holdfast.tune.experiment.shared_nodes import SharedNodes
from holdfast.tune.experiment.trial import Trial
from holdfast.tune.experiment.trial_run import TrialRun
from holdfast.tune.experiment.trial_storage import JournalBatch, TrialHistory
from holdfast.tune.schedulers.trial_scheduler import PENDING

_MOST_AT_ONCE = 256  # trials that a cluster is asked for, if nothing else limits them
_GRANTED_WITHIN_S = 10.0  # by a cluster that has room; then a person is told what is waited for
_MOST_MISFITS = 100  # an experiment without end would go on with them for ever


class TrialStarter:
    """``happen`` takes in what happens to trials. ``reserved`` is the room of those that are about to begin.
    ``expected``: how many trials there will be; infinite if the searcher decides that on the way."""

    def __init__(
        self,
        experiment: Experiment,
        nodes: SharedNodes,
        batch: JournalBatch,
        inbox: Inbox,
        settings: Settings,
        listeners: Any,
        happen: Callable[[ev.Event], None],
        plan_of: Callable[[Trial], Plan],
        max_concurrent: int,
        score_attribute: str | None,
        placement_of: Callable[[Trial], BundlePlacement],
        expected: float,
    ) -> None:
        self._experiment, self._nodes, self._batch, self._inbox = experiment, nodes, batch, inbox
        self._settings, self._listeners, self._happen, self._plan_of = settings, listeners, happen, plan_of
        self._max_concurrent, self._score_attribute = max_concurrent, score_attribute
        self._placement_of, self._expected = placement_of, expected
        self.runs: dict[str, TrialRun] = {}
        self.reserved: dict[str, Shares] = {}
        self.histories: dict[str, TrialHistory] = {}  # of trials that have not ended
        self._typical: Any = None  # the room that the last trial took, and how it was placed
        self._waited_for: dict[str, float] = {}  # trials that nothing runs before, and since when
        self._misfits = 0  # trials in a row that can never have room

    def fill(self) -> None:
        experiment = self._experiment
        if experiment.scheduler.needs_population:
            while (added := experiment.propose()) is not None:
                self._happen(added)
        while self._may_start():
            trial = experiment.next_to_run()
            if trial is None:
                if experiment.exhausted or not self._seems_to_fit() or (added := experiment.propose()) is None:
                    break
                self._happen(added)
                continue
            self._typical = trial.resources, self._placement(trial)
            shares = self._place(*self._typical)
            if shares is None:
                if not self._can_never_fit(trial):
                    self._say_what_is_waited_for(trial)
                    break
                continue
            self._misfits = 0
            self.reserved[trial.trial_id] = shares
            self._exploit(trial)
            self._happen(ev.Started(trial.trial_id, time.time()))

    def _may_start(self) -> bool:
        busy = len(self.runs) + len(self.reserved)
        return not self._max_concurrent or busy < self._max_concurrent

    def _seems_to_fit(self) -> bool:
        """Whether another trial like the last one would find room, so that it is time to ask the searcher for it."""
        if self._typical is None or not (self.runs or self.reserved):  # nothing will end and make room
            return True
        shares = self._place(*self._typical)
        if shares is None:
            return False
        self._nodes.capacity.give_back(shares)
        return True

    def _placement(self, trial: Trial) -> BundlePlacement:
        return self._placement_of(trial) if self._nodes.capacity.is_granted else PLAIN

    def _place(self, bundles: Bundles, placement: BundlePlacement) -> Shares | None:
        shares = self._nodes.capacity.place(bundles, placement)
        if shares is None and self._nodes.capacity.is_granted:
            self._nodes.capacity.expect(bundles, placement, self._ahead() - 1)
        return shares

    def _ahead(self) -> int:
        """How many trials may be started soon. What a searcher will say nobody knows: as many as there are now."""
        busy = len(self.runs) + len(self.reserved)
        most = (self._max_concurrent or _MOST_AT_ONCE) - busy
        if math.isinf(self._expected):
            return min(most, max(1, busy))
        return int(min(most, self._expected - self._experiment.count + self._experiment.count_of(PENDING)))

    def _can_never_fit(self, trial: Trial) -> bool:
        if self._nodes.grows or not self._nodes.capacity.is_settled or self._nodes.capacity.can_ever(trial.resources):
            return False
        asked = " + ".join(str(dict(bundle)) for bundle in trial.resources)
        there = {name: amount for name, amount in self._nodes.capacity.total().items() if amount}
        self._happen(ev.Ended(trial.trial_id, f"it asks for {asked}, and there is only {there}: use with_resources"))
        self._misfits += 1
        if self._misfits >= _MOST_MISFITS:
            self._happen(ev.StopDecided(f"{self._misfits} trials in a row asked for more than there is"))
        return True

    def _say_what_is_waited_for(self, trial: Trial) -> None:
        if self.runs or not self._nodes.grows:
            return  # it is its turn when another one has ended
        now, granted = time.monotonic(), self._nodes.capacity.is_granted
        since = self._waited_for.setdefault(trial.trial_id, now)
        if since == -math.inf or (granted and now < since + _GRANTED_WITHIN_S):
            return
        self._waited_for[trial.trial_id] = -math.inf
        asked = " + ".join(str(dict(bundle)) for bundle in trial.resources)
        there = {name: amount for name, amount in self._nodes.capacity.total().items() if amount}
        state = "the cluster was asked for it" if granted else f"the nodes have {there or 'nothing'} now"
        self._listeners.warn(f"{trial} waits for {asked}; {state}")

    def _exploit(self, trial: Trial) -> None:
        request = trial.donor
        if request is None:
            return
        donor = self._experiment.trial(request.donor_id)
        where = self._experiment.home_of(donor), self._experiment.home_of(trial)
        number = request.checkpoint if request.checkpoint is not None else donor.checkpoint_number
        try:
            record: CheckpointRecord = adopt(
                *where, number, f"x{trial.exploits + 1}", self._score_attribute, self._settings.storage_patience_s
            )
        except StorageError as error:  # its start, without the exploit, says that it is given up
            self._listeners.warn(f"{trial} goes on from its own checkpoint: {error}")
            return
        history = self.history(trial)
        event = run_events.Adopted(record)
        history.write([(type(event).__name__, msgspec.to_builtins(event))], lambda: None)
        self._happen(ev.Exploited(trial.trial_id, request.donor_id, record.report, dict(request.config)))

    def history(self, trial: Trial) -> TrialHistory:
        if trial.trial_id not in self.histories:
            self.histories[trial.trial_id] = TrialHistory(trial.trial_id, self._batch, self._experiment.epoch)
        return self.histories[trial.trial_id]

    def leave(self, trial: Trial) -> None:
        """To the next driver: it was to be started, and all is stopped now."""
        self._nodes.capacity.give_back(self.reserved.pop(trial.trial_id))

    def run(self, trial: Trial) -> None:
        shares = self.reserved.pop(trial.trial_id)
        try:
            plan = self._plan_of(trial)
        except Exception as error:
            self._nodes.capacity.give_back(shares)
            self._happen(ev.Ended(trial.trial_id, f"it could not be started: {error}"))
            return
        run = TrialRun(
            trial.trial_id,
            trial.name,
            plan,
            self._nodes,
            shares,
            self.history(trial),
            self._settings,
            self._inbox,
            self._listeners.warn,
            self._listeners.output,
            partial(self._listeners.recovers, trial),
            trial.heard,
        )
        self.runs[trial.trial_id] = run
        self._listeners.started(trial)
        run.start()

    def find_capacity(self, run: TrialRun) -> None:
        """For a trial that lost a node, or will."""
        trial = self._experiment.trial(run.trial_id)
        lacking = self._nodes.lacking(run.engine.run, trial.resources)
        if not lacking:
            run.engine.wants_capacity = False
            return
        placement = self._placement(trial)
        placement = replace(placement, strategy="PACK", labels=placement.labels[: len(lacking)])
        shares = self._nodes.capacity.place(lacking, placement)
        if shares is not None:
            run.engine.wants_capacity = False
            self._nodes.give_more(run.engine.run, shares)
