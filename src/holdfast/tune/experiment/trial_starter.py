"""Starts trials: reserves capacity on nodes, copies another trial's checkpoint if one is due, and runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.trial import PENDING, Trial
from holdfast.core.run import events as run_events
from holdfast.driver.plan import Plan
from holdfast.errors import StorageError
from holdfast.train.context import FREE_UNTIL, TRIAL

from .capacity import PLAIN, BundlePlacement, Bundles, Shares
from .live_experiment import LiveExperiment
from .trial_run import TrialRun
from .trial_runtime import SharedByTrials, TrialRuntime
from .trial_storage import TrialHistory

_MOST_AT_ONCE = 256  # the most trials for which a cluster is asked, if nothing else limits them
_GRANTED_WITHIN_S = 10.0  # then a message says what a trial is waiting for


class TrialStarter:
    """The core's ``FreeCapacity``. ``happen`` takes in what happens to trials; ``expected``: how many trials there will
    be, infinite if the searcher decides that on the way."""

    def __init__(
        self,
        experiment: LiveExperiment,
        shared: SharedByTrials,
        runtime: TrialRuntime,
        happen: Callable[[ev.Event], None],
        expected: float,
    ) -> None:
        self._experiment, self._shared, self._runtime = experiment, shared, runtime
        self._nodes, self._happen, self._expected = shared.nodes, happen, expected
        self.runs: dict[str, TrialRun] = {}
        self.histories: dict[str, TrialHistory] = {}  # of trials that have not ended
        self._reserved: dict[str, Shares] = {}  # shares of trials that are about to start
        self._typical: Any = None  # the capacity that the last trial took, and how it was placed
        self._waited_for: dict[str, float] = {}  # trials that wait although nothing is running, and since when

    # Free capacity

    def reserve(self, trial: Trial) -> bool:
        self._typical = trial.resources, self._placement(trial)
        shares = self._place(*self._typical)
        if shares is not None:
            self._reserved[trial.trial_id] = shares
        return shares is not None

    def seems_free(self) -> bool:
        if self._typical is None or not self._experiment.state.driver.active:  # nothing will end and free capacity
            return True
        shares = self._place(*self._typical)
        if shares is None:
            return False
        self._nodes.capacity.give_back(shares)
        return True

    def why_never(self, trial: Trial) -> str:
        capacity = self._nodes.capacity
        if self._nodes.grows or not capacity.is_settled or capacity.can_ever(trial.resources):
            self._say_what_is_waited_for(trial)
            return ""
        asked = " + ".join(str(dict(bundle)) for bundle in trial.resources)
        there = {name: amount for name, amount in capacity.total().items() if amount}
        return f"it asks for {asked}, and there is only {there}: use with_resources"

    def _placement(self, trial: Trial) -> BundlePlacement:
        return self._runtime.placement_of(trial) if self._nodes.capacity.is_granted else PLAIN

    def _place(self, bundles: Bundles, placement: BundlePlacement) -> Shares | None:
        shares = self._nodes.capacity.place(bundles, placement)
        if shares is None and self._nodes.capacity.is_granted:
            self._nodes.capacity.expect(bundles, placement, self._ahead() - 1)
        return shares

    def _ahead(self) -> int:
        """How many trials may start soon. A searcher's next suggestion is unknown: assume as many as there are now."""
        state = self._experiment.state
        busy = len(state.driver.active)
        most = (state.limits.max_concurrent or _MOST_AT_ONCE) - busy
        if math.isinf(self._expected):
            return min(most, max(1, busy))
        return int(min(most, self._expected - state.count + state.count_of(PENDING)))

    def _say_what_is_waited_for(self, trial: Trial) -> None:
        if self.runs or not self._nodes.grows:
            return  # it starts when another one has ended
        now, granted = self._shared.clock.monotonic(), self._nodes.capacity.is_granted
        since = self._waited_for.setdefault(trial.trial_id, now)
        if since == -math.inf or (granted and now < since + _GRANTED_WITHIN_S):
            return
        self._waited_for[trial.trial_id] = -math.inf
        asked = " + ".join(str(dict(bundle)) for bundle in trial.resources)
        there = {name: amount for name, amount in self._nodes.capacity.total().items() if amount}
        state = "the cluster was asked for them" if granted else f"the nodes have {there or 'nothing'} now"
        self._shared.listeners.warn(f"{trial} waits for {asked}; {state}")

    # Their start

    def adopt(self, trial: Trial) -> None:
        request = trial.donor
        assert request is not None
        donor = self._experiment.trial(request.donor_id)
        number = request.checkpoint if request.checkpoint is not None else donor.checkpoint_number
        try:
            record = self._runtime.adopt(donor, trial, number)
        except StorageError as error:  # its start without the exploit shows that the exploit was given up
            self._shared.listeners.warn(f"{trial} resumes from its own checkpoint: {error}")
            return
        event = run_events.Adopted(record)
        self.history(trial).write([run_events.journalled(event)], lambda: None)
        self._happen(ev.Exploited(trial.trial_id, request.donor_id, record.report, dict(request.config)))

    def history(self, trial: Trial) -> TrialHistory:
        if trial.trial_id not in self.histories:
            epoch = self._experiment.state.epoch
            self.histories[trial.trial_id] = TrialHistory(trial.trial_id, self._shared.batch, epoch)
        return self.histories[trial.trial_id]

    def run(self, trial: Trial) -> None:
        """Start the trial with the reserved capacity. If everything is being stopped, return the capacity: the next
        driver starts the trial."""
        shares = self._reserved.pop(trial.trial_id)
        if self._experiment.state.driver.interrupted:
            self._nodes.capacity.give_back(shares)
            self._happen(ev.RunGone(trial.trial_id, was_stopped=True))
            return
        try:
            plan = self._with_foresight(self._runtime.plan_of(trial), trial)
        except Exception as error:
            self._nodes.capacity.give_back(shares)
            self._happen(ev.RunGone(trial.trial_id, f"it could not be started: {error}"))
            return
        recovers = partial(self._shared.listeners.recovers, trial)
        retry = partial(self._shared.batch.note, (), recovers)  # after the results that came before it
        run = TrialRun(trial, plan, shares, self.history(trial), self._shared, self._runtime, retry)
        self.runs[trial.trial_id] = run
        self._shared.listeners.started(trial)
        run.start()

    def _with_foresight(self, plan: Plan, trial: Trial) -> Plan:
        """Its process knows from the start up to which step nothing is decided."""
        until = self._experiment.policy.free_until(trial.trial_id, trial.heard)
        about = {**plan.metadata.get(TRIAL, {}), FREE_UNTIL: until}
        return replace(plan, metadata={**plan.metadata, TRIAL: about})

    def find_capacity(self, run: TrialRun) -> None:
        """Find capacity for a trial that has lost a node or will lose one."""
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
