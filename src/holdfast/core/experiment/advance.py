"""The next action of the experiment after all events have been processed: which trial to add, start or end, and whether
the experiment has ended. Called again until there is nothing to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.resumption import Resumption
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import PAUSED, PENDING, Trial
from holdfast.core.experiment.trials import after_the_end

NEVER_RESUMED = "it was paused, and no scheduler resumed it"
MOST_MISFITS = 100  # else an endless experiment would only ever add such trials


class FreeCapacity(Protocol):
    """The free resources on the nodes."""

    def reserve(self, trial: Trial) -> bool:
        """Reserve the resources of the trial, if they are free."""

    def seems_free(self) -> bool:
        """Whether another trial like the last one could be started. Only then is the searcher asked for a trial."""

    def why_never(self, trial: Trial) -> str:
        """Why the trial could not run even on empty nodes; empty if it could."""


def advance(
    state: ExperimentState, policy: Policy, capacity: FreeCapacity, now: float, *, is_ready: bool, is_durable: bool
) -> list[do.Command]:
    """``is_ready``: the nodes that existed at the start have joined, or the time for that is over. ``is_durable``: all
    events so far are durable and have been acted on."""
    settled = [t for t in state.awaiting.values() if t.trial_id not in state.driver.active] if state.awaiting else []
    if settled:
        return [do.Decide(after_the_end(trial)) for trial in settled]
    if is_ready and not state.driver.interrupted and not state.stopping:
        commands = _next_start(state, policy, capacity, now)
        if commands:
            return commands
    if state.driver.active or state.is_over or not is_durable:
        state.driver.idled = state.driver.idled and not state.driver.active
        return []
    return _next_end(state, policy, is_ready)


def begin(state: ExperimentState, resumption: Resumption, finished: frozenset[str]) -> Iterator[ev.Event]:
    """A driver's first events for the trials of earlier drivers, whose processes have all exited. Process each event
    before you request the next. ``finished``: trials whose runs had finished before the journal could say so."""
    for trial in list(state.awaiting.values()):
        came_to_its_end = trial.trial_id in finished and trial.awaits not in ("STOP", "ERROR")
        yield ev.Ended(trial.trial_id) if came_to_its_end else after_the_end(trial)
    for trial in state.get_trials():
        resumed = resumption.of(trial)
        if resumed is not None:
            yield resumed
        elif trial.trial_id in finished and trial.status == PENDING:
            yield ev.Ended(trial.trial_id)


def propose(state: ExperimentState, policy: Policy) -> ev.Added | None:
    """The next trial, if the searcher has one now."""
    if state.driver.exhausted or state.stopping or policy.stops_all():
        return None
    if 0 <= state.limits.num_trials <= len(state.trials):
        state.driver.exhausted = True
        return None
    suggested = policy.suggest(len(state.trials))
    if isinstance(suggested, ev.Added):
        return suggested
    state.driver.exhausted = suggested == "finished"
    return None


def _next_start(state: ExperimentState, policy: Policy, capacity: FreeCapacity, now: float) -> list[do.Command]:
    driver, limits = state.driver, state.limits
    if policy.needs_population:
        added = propose(state, policy)
        if added is not None:
            return [do.Decide(added)]
    if limits.max_concurrent and len(driver.active) >= limits.max_concurrent:
        return []
    chosen = policy.choose(state)
    trial = None if chosen is None else state.live.get(chosen)
    if trial is None or trial.status not in (PENDING, PAUSED) or trial.trial_id in driver.active:
        if driver.exhausted or not capacity.seems_free():
            return []
        added = propose(state, policy)
        return [] if added is None else [do.Decide(added)]
    if not capacity.reserve(trial):
        return _cannot_start(state, trial, capacity.why_never(trial))
    driver.misfits = 0
    driver.active[trial.trial_id] = None
    start = do.Decide(ev.Started(trial.trial_id, now))
    return [start] if trial.donor is None else [do.Adopt(trial.trial_id), start]


def _cannot_start(state: ExperimentState, trial: Trial, why: str) -> list[do.Command]:
    if not why:
        return []  # it fits when other trials have ended
    state.driver.misfits += 1
    commands: list[do.Command] = [do.Decide(ev.Ended(trial.trial_id, why))]
    if state.driver.misfits >= MOST_MISFITS:
        text = f"{state.driver.misfits} trials in a row asked for more than there is"
        commands.append(do.Decide(ev.StopDecided(text)))
    return commands


def _next_end(state: ExperimentState, policy: Policy, is_ready: bool) -> list[do.Command]:
    """The next command when nothing is running and nothing can be started."""
    driver, live = state.driver, state.live.values()
    if driver.interrupted:
        return [do.Finish()]
    if not is_ready:
        return []
    if not live:  # else the searcher will be asked again
        return [do.Decide(ev.Over())] if driver.exhausted or state.stopping else []
    if policy.choose(state) is not None:
        return []  # it waits for capacity
    driver.idled = not driver.idled
    if driver.idled:
        return [do.Decide(ev.Idled())]
    return [do.Decide(ev.Ended(trial.trial_id, "", NEVER_RESUMED)) for trial in live]
