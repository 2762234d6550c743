"""The experiment's loop: receive events of trials, let the core decide, journal what must survive, carry it out.

One thread drives all trials. Events from agents, storage and signals arrive through one inbox. In each turn, all events
are journalled with one write, and only then acted on. All decisions are made in ``core/experiment``.
"""

from __future__ import annotations

import logging
import math
import queue
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment.advance import advance, begin, propose
from holdfast.core.experiment.resumption import Resumption
from holdfast.core.experiment.trial import RUNNING, Trial
from holdfast.errors import message_of
from holdfast.platform import interrupt
from holdfast.store.journal import Record

from .callback_delivery import Backlog, CallbackDelivery
from .live_experiment import LiveExperiment
from .restore import Kept, entry_of, replay
from .trial_run import ForTrial, Said, TrialRun, abandon
from .trial_runtime import SharedByTrials, TrialRuntime
from .trial_starter import TrialStarter
from .trial_storage import TrialHistory

log = logging.getLogger(__name__)
_BATCH = 1000
_TICK_S = 1.0  # how often time limits and reporters are checked
_NODES_JOIN_WITHIN_S = 10.0


class ExperimentDriver:
    """``expected``: how many trials there will be; infinite if the searcher decides that later."""

    def __init__(
        self,
        experiment: LiveExperiment,
        shared: SharedByTrials,
        runtime: TrialRuntime,
        resumption: Resumption,
        expected: float,
    ) -> None:
        self._experiment, self._shared, self._runtime = experiment, shared, runtime
        self._resumption = resumption
        self._storage, self._inbox, self._batch = shared.batch.storage, shared.inbox, shared.batch
        self._nodes, self._listeners, self._clock = shared.nodes, shared.listeners, shared.clock
        self._space = experiment.policy.space
        self._delivery = CallbackDelivery(self._listeners, self._batch)
        self._listeners.save_asked = self._save
        self._starter = TrialStarter(experiment, shared, runtime, self._happen, expected)
        self._runs = self._starter.runs
        self._began_at = self._clock.monotonic()
        self._signal: int | None = None
        self._is_over = False
        self._kept: Kept = {}
        self._backlog = Backlog()
        self._is_ready_by = math.inf

    # From start to end

    def run(self) -> str:
        """Run to the end: "finished", or "stopped" if a stop was requested. The lease has been taken already."""
        outcome, text = "failed", ""
        try:
            with interrupt.handled(self.ask_to_stop):
                self.start()
                while not self._is_over:
                    self.turn(self._wait())
                self._batch.write_mark()
            text = self._experiment.state.driver.interrupted
            outcome = "stopped" if text else "finished"
            return outcome
        except Exception as error:
            text = message_of(error)
            raise
        finally:
            self._close(self._nodes.close)
            abandon([run for run in self._runs.values() if not run.is_over])
            try:
                self._listeners.finished(outcome, text)
            finally:
                self._close(lambda: self._batch.sync_if_due(math.inf), lambda: self._storage.close(True))

    def replay(self, records: Iterable[Record]) -> None:
        """Restore the experiment to the state of an earlier driver."""
        self._kept, self._backlog = replay(self._experiment, records)

    def begin(self, epoch: int) -> None:
        """This driver's first records after the replayed ones, and those that the previous driver was about to
        write."""
        state, spec = self._experiment.state, self._experiment.spec
        self._delivery.catch_up(self._backlog.untold)
        for trial_id, records in self._kept.items():
            self._hear_late(self._trial(trial_id), records)
        self._happen(ev.Began(epoch, dict(spec.host), marks=True, answers=True, spent_s=state.spent_s))
        finished = frozenset(id for id, records in self._kept.items() if self._runtime.has_finished(records))
        for event in begin(state, self._resumption, finished):
            self._happen(event)
            if isinstance(event, ev.Resumed) and event.anew:
                self._kept.pop(event.trial, None)
        for trial_id, records in self._kept.items():
            if not self._trial(trial_id).has_ended:
                self._starter.histories[trial_id] = TrialHistory(trial_id, self._batch, epoch, records)
        self._kept = {}

    def _hear_late(self, trial: Trial, records: list[Record]) -> None:
        if trial.awaits or trial.status != RUNNING:
            return
        for event in self._runtime.unheard(trial, records):
            before = trial.results
            self._happen(event)
            if trial.results > before:
                self._delivery.reported_late(trial)

    def start(self) -> None:
        self._listeners.began(self._experiment, self._storage.check_lease)
        if self._nothing_is_left():
            self._happen(ev.Over())
        else:
            self._nodes.open(self._runtime.configure, self._inbox)
            self._is_ready_by = self._clock.monotonic() + _NODES_JOIN_WITHIN_S
        self.turn([])

    def _nothing_is_left(self) -> bool:
        """Whether all trials have ended and the searcher has no further one: restoring a finished experiment needs no
        nodes."""
        state = self._experiment.state
        if state.live:
            return False
        added = propose(state, self._experiment.policy)
        if added is not None:
            self._happen(added)
        return added is None and state.driver.exhausted

    def _close(self, *closers: Callable[[], None]) -> None:
        for close in closers:
            try:
                close()
            except Exception as error:
                log.warning("%s", error)

    def ask_to_stop(self, number: int, at_once: bool) -> None:
        self._signal = number
        self._inbox.put(lambda: self._happen(ev.StopAsked("it was asked to stop", at_once)))

    @property
    def signal(self) -> int | None:
        return self._signal

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def failed_fast(self) -> str | None:
        """The trial whose failure ended the experiment."""
        return self._experiment.state.driver.failed_fast

    # The loop

    def elapsed(self) -> float:
        """How long this driver and those before it have worked on the experiment."""
        return self._experiment.spent_s + self._clock.monotonic() - self._began_at

    def _wait(self) -> list[Any]:
        due = min([self._clock.monotonic() + _TICK_S, self._batch.due(), *(run.due() for run in self._runs.values())])
        try:
            return [self._inbox.get(timeout=max(0.0, due - self._clock.monotonic())), *self._heard()]
        except queue.Empty:
            return []

    def turn(self, items: list[Any]) -> None:
        self._storage.check_lease()
        self._hear(items)
        self._hear(self._heard())  # how much of that was for trials
        now = self._clock.monotonic()
        for run in list(self._runs.values()):
            run.on_time(now)
        self._settle()
        while self._batch.write():  # what arrives meanwhile waits for the next turn, or this one might never end
            self._settle()
        self._batch.sync_if_due(self._clock.monotonic())
        changes = self._listeners.turned()
        self._delivery.turned()
        for changed in changes:
            self._happen(changed)
            self._batch.write()
        self._happen(ev.ClockLookedAt())
        while self._batch.write():
            self._settle()

    def _heard(self) -> list[Any]:
        items: list[Any] = []
        while len(items) < _BATCH and not self._inbox.empty():
            items.append(self._inbox.get())
        return items

    def _hear(self, items: list[Any]) -> None:
        for item in items:
            if isinstance(item, ForTrial):
                item.run.take_in([item.item])
            elif isinstance(item, Exception):
                raise item
            elif callable(item):
                item()
            else:
                self._nodes.hear(*item)

    def _settle(self) -> None:
        """Process what the trials have reported and how they ended; then take the next actions."""
        for run in list(self._runs.values()):
            self._hear_reports(run)
            if run.is_over and run.is_gone and not run.said:
                del self._runs[run.trial_id]
                if run.exception is not None:
                    self._experiment.failures[run.trial_id] = run.exception
                self._happen(ev.RunGone(run.trial_id, run.failure(), run.was_stopped))
            elif run.engine.wants_capacity and not run.is_over:
                self._starter.find_capacity(run)
        while not self._is_over and self._advance():
            pass
        self._nodes.capacity.settle()

    def _advance(self) -> bool:
        experiment = self._experiment
        commands = advance(
            experiment.state,
            experiment.policy,
            self._starter,
            self._clock.time(),
            is_ready=self._nodes.capacity.is_settled or self._clock.monotonic() >= self._is_ready_by,
            is_durable=not self._batch.has_open,
        )
        for command in commands:
            self._carry_out(command)
        return bool(commands)

    def _hear_reports(self, run: TrialRun) -> None:
        said, run.said = run.said, []
        trial = self._trial(run.trial_id)
        for report in said:
            before = trial.results
            self._happen(_reported(run.trial_id, report, self._clock.time()))
            if trial.results > before:
                self._delivery.reported(trial)

    def _happen(self, event: ev.Event) -> None:
        """The core steps the event now. The effects follow when it is journalled."""
        commands = self._experiment.apply(event, self._clock.time())
        if commands and isinstance(commands[0], do.Journal):
            written = commands[0].event
            self._batch.note([entry_of(written, self._space)], partial(self._act, written, commands[1:]))
            return
        for command in commands:
            self._carry_out(command)

    def _act(self, event: ev.Event, commands: list[do.Command]) -> None:
        if isinstance(event, (ev.Ended, ev.Skipped)):
            self._starter.histories.pop(event.trial, None)
            self._delivery.ended(self._trial(event.trial))
        elif isinstance(event, ev.Exploited):
            self._listeners.exploited(self._trial(event.trial))
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.Decide(event):
                self._happen(event)
            case do.Adopt(trial_id):
                self._starter.adopt(self._trial(trial_id))
            case do.Run(trial_id):
                self._starter.run(self._trial(trial_id))
            case do.StopRun(trial_id):
                if trial_id in self._runs:
                    self._runs[trial_id].stop()
            case do.LetContinue(trial_id, until):
                if trial_id in self._runs:
                    self._runs[trial_id].go_on(until)
            case do.Interrupt(why, at_once):
                self._listeners.stopping(f"{why}{_stopped(len(self._runs), at_once)}")
                for run in self._runs.values():
                    run.stop(at_once)
            case do.Finish():
                self._is_over = True

    def _save(self, trial: Trial) -> None:
        if trial.trial_id in self._runs:
            self._runs[trial.trial_id].save()

    def _trial(self, trial_id: str) -> Trial:
        return self._experiment.trial(trial_id)


def _stopped(running: int, at_once: bool) -> str:
    if not running:
        return ""
    who = "the trial that runs is" if running == 1 else f"the {running} trials that run are"
    return f": {who} stopped{' immediately' if at_once else '. Press Ctrl+C again to quit immediately'}"


def _reported(trial_id: str, said: Said, now: float) -> ev.Reported:
    metrics = said.metrics
    if said.checkpoint is not None:
        metrics["checkpoint_dir_name"] = said.checkpoint
    checkpoint = said.iteration if said.checkpoint is not None else None
    return ev.Reported(trial_id, said.iteration, metrics, checkpoint, now)
