"""The experiment's loop: hear trials, journal what must survive, let the machine decide, carry it out.

One thread drives all trials. What comes in, from agents, storage and signals, comes through one inbox. In each turn
all that happened is journalled with one write, and only then acted on.
"""

from __future__ import annotations

import logging
import math
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from holdfast import interrupt
from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.driver.plan import Plan
from holdfast.driver.remote_storage import RemoteStorage
from holdfast.driver.storage import DiskStorage
from holdfast.engine.base import Engine, Inbox
from holdfast.errors import message_of
from holdfast.settings import Settings
from holdfast.store.journal import Record
from holdfast.tune.experiment.callback_delivery import Backlog, CallbackDelivery
from holdfast.tune.experiment.capacity import BundlePlacement
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.experiment.machine import Experiment
from holdfast.tune.experiment.restore import Kept, entry_of, replay, unheard
from holdfast.tune.experiment.resumption import Resumption, was_over
from holdfast.tune.experiment.shared_nodes import SharedNodes
from holdfast.tune.experiment.trial import Trial
from holdfast.tune.experiment.trial_run import ForTrial, Said, TrialRun
from holdfast.tune.experiment.trial_starter import TrialStarter
from holdfast.tune.experiment.trial_storage import JournalBatch, TrialHistory
from holdfast.tune.schedulers.trial_scheduler import PAUSED, PENDING, RUNNING
from holdfast.wire import messages as wire

log = logging.getLogger(__name__)
_BATCH = 1000
_TICK_S = 1.0  # how often time limits and reporters are looked at
_NODES_JOIN_WITHIN_S = 10.0


class ExperimentDriver:
    """``plan_of`` says how a trial runs. ``configure`` is what the agents are told first."""

    def __init__(
        self,
        experiment: Experiment,
        storage: DiskStorage | RemoteStorage,
        inbox: Inbox,
        engine: Engine,
        settings: Settings,
        listeners: Listeners,
        *,
        space: Mapping[str, Any],
        plan_of: Callable[[Trial], Plan],
        configure: wire.Configure,
        resumption: Resumption,
        max_concurrent: int,
        score_attribute: str | None,
        placement_of: Callable[[Trial], BundlePlacement],
        expected: float,
    ) -> None:
        self._experiment, self._storage, self._inbox = experiment, storage, inbox
        self._settings, self._listeners = settings, listeners
        self._space, self._configure, self._resumption = space, configure, resumption
        self._batch = JournalBatch(storage)
        self._delivery = CallbackDelivery(listeners, self._batch)
        self._nodes = SharedNodes(engine)
        self._starter = TrialStarter(
            experiment,
            self._nodes,
            self._batch,
            inbox,
            settings,
            listeners,
            self._happen,
            plan_of,
            max_concurrent,
            score_attribute,
            placement_of,
            expected,
        )
        self._runs = self._starter.runs
        self._began_at = time.monotonic()
        self._signal: int | None = None
        self._letting_go = ""  # why all that runs is to be stopped and left unfinished
        self._over = self._idled = False
        self._failed_fast: str | None = None
        self._kept: Kept = {}
        self._backlog = Backlog()
        self._is_ready_by = math.inf

    # From start to end

    def run(self) -> str:
        """To the end: "finished", or "stopped" if somebody asked for that. The lease is taken already."""
        outcome, text = "failed", ""
        try:
            with interrupt.handled(self.ask_to_stop):
                self._start()
                while not self._over:
                    self._turn(self._wait())
                self._batch.write_mark()
            outcome = "stopped" if self._letting_go else "finished"
            text = self._letting_go
            return outcome
        except Exception as error:
            text = message_of(error)
            raise
        finally:
            self._close(self._nodes.close)
            try:
                self._listeners.finished(outcome, text)
            finally:
                self._close(lambda: self._batch.sync_if_due(math.inf), lambda: self._storage.close(True))

    def replay(self, records: Iterable[Record]) -> None:
        """Bring the machine to where an earlier driver left it, and take in what that was about to write."""
        self._kept, self._backlog = replay(self._experiment, records, self._space)

    def begin(self, epoch: int) -> None:
        """This driver's first words, behind what was replayed."""
        experiment = self._experiment
        self._spent_before = experiment.spent_s
        self._delivery.catch_up(self._backlog.untold)
        for trial_id, records in self._kept.items():
            self._hear_late(self._trial(trial_id), records)
        self._happen(ev.Began(epoch, dict(experiment.spec.host), marks=True))
        for event in experiment.recover():
            self._happen(event)
        for trial in experiment.get_trials():
            resumed = self._resumption.of(trial)
            if resumed is not None:
                self._happen(resumed)
        for trial_id, records in self._kept.items():
            left = self._trial(trial_id)
            if not left.has_ended:
                self._starter.histories[trial_id] = TrialHistory(trial_id, self._batch, epoch, records)
                if was_over(left, records):
                    self._happen(ev.Ended(trial_id))
        self._kept = {}

    def _hear_late(self, trial: Trial, records: list[Record]) -> None:
        if trial.has_ended or trial.awaits or trial.status != RUNNING:
            return
        for event in unheard(trial, self._experiment.home_of(trial), records, self._settings.storage_patience_s):
            before = trial.results
            self._happen(event)
            if trial.results > before:
                self._delivery.reported_late(trial)

    def _start(self) -> None:
        self._listeners.began(self._experiment)
        if self._nothing_is_left():
            self._end()
        else:
            self._nodes.open(self._configure, self._inbox)
            self._is_ready_by = time.monotonic() + _NODES_JOIN_WITHIN_S
        self._turn([])

    def _nothing_is_left(self) -> bool:
        """Whether all trials have ended and the searcher has no more: a restore of what had finished needs no nodes."""
        if self._experiment.get_live_trials():
            return False
        added = self._experiment.propose()
        if added is not None:
            self._happen(added)
        return added is None and self._experiment.exhausted

    def _close(self, *closers: Callable[[], None]) -> None:
        for close in closers:
            try:
                close()
            except Exception as error:
                log.warning("%s", error)

    def ask_to_stop(self, number: int, at_once: bool) -> None:
        self._signal = number
        self._inbox.put(lambda: self._let_go("it was asked to stop", at_once))

    @property
    def signal(self) -> int | None:
        return self._signal

    @property
    def failed_fast(self) -> str | None:
        """The trial whose failure ended the experiment."""
        return self._failed_fast

    def _let_go(self, why: str, at_once: bool = False) -> None:
        """Stop what runs, with what it has reported safe, and leave it to be resumed."""
        self._letting_go = self._letting_go or why
        self._listeners.stopping(f"{why}{_stopped(len(self._runs), at_once)}")
        for run in self._runs.values():
            run.stop(at_once)

    # The loop

    def elapsed(self) -> float:
        return self._spent_before + time.monotonic() - self._began_at

    def _wait(self) -> list[Any]:
        due = min([time.monotonic() + _TICK_S, self._batch.due(), *(run.due() for run in self._runs.values())])
        try:
            return [self._inbox.get(timeout=max(0.0, due - time.monotonic())), *self._heard()]
        except queue.Empty:
            return []

    def _turn(self, items: list[Any]) -> None:
        self._storage.check_lease()
        self._hear(items)
        self._hear(self._heard())  # what of that was for trials
        now = time.monotonic()
        for run in list(self._runs.values()):
            run.on_time(now)
        self._settle()
        while self._batch.write():  # what came in meanwhile is for the next turn, or this one might never end
            self._settle()
        self._batch.sync_if_due(time.monotonic())
        changes = self._listeners.turned()
        self._delivery.turned()
        for changed in changes:
            self._happen(changed)
            self._batch.write()
        self._look_at_the_clock()

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
        """Take in what the trials have said and how they ended; then start what can be started."""
        for run in list(self._runs.values()):
            self._hear_reports(run)
            if run.is_over and run.is_gone and not run.said:
                self._run_is_gone(run)
            elif run.engine.wants_capacity and not run.is_over:
                self._starter.find_capacity(run)
        if not self._letting_go and self._is_ready():
            self._starter.fill()
        self._nodes.capacity.settle()
        self._end_if_over()

    def _hear_reports(self, run: TrialRun) -> None:
        said, run.said = run.said, []
        trial = self._trial(run.trial_id)
        for report in said:
            if trial.awaits:
                return
            before = trial.results
            self._happen(_reported(run.trial_id, report))
            if trial.results > before:
                self._delivery.reported(trial)

    def _happen(self, event: ev.Event) -> None:
        """The machine takes it in now; what follows is done when it is journalled."""
        commands = self._experiment.apply(event)
        for command in commands:
            if isinstance(command, do.FailFast):  # nothing is started from now on
                self._letting_go = f"{self._trial(command.trial)} failed, and fail_fast is set"
        self._batch.note([entry_of(event, self._space)], partial(self._act, event, commands))

    def _act(self, event: ev.Event, commands: list[do.Command]) -> None:
        if isinstance(event, (ev.Ended, ev.Skipped)):
            self._starter.histories.pop(event.trial, None)
            self._delivery.ended(self._trial(event.trial))
        elif isinstance(event, ev.Exploited):
            self._listeners.exploited(self._trial(event.trial))
        for command in commands:
            match command:
                case do.Decide(decided):
                    self._happen(decided)
                case do.Run(trial_id) if self._letting_go:
                    self._starter.leave(self._trial(trial_id))
                case do.Run(trial_id):
                    self._starter.run(self._trial(trial_id))
                case do.StopRun(trial_id):
                    if trial_id in self._runs:
                        self._runs[trial_id].stop()
                case do.LetGoOn(trial_id, until):
                    if trial_id in self._runs:
                        self._runs[trial_id].go_on(until)
                case do.FailFast(trial_id):
                    self._failed_fast = trial_id
                    self._let_go(self._letting_go)

    def _trial(self, trial_id: str) -> Trial:
        return self._experiment.trial(trial_id)

    def _is_ready(self) -> bool:
        """Whether the nodes that were there at the start have joined, or have had the time to."""
        return self._nodes.capacity.is_settled or time.monotonic() >= self._is_ready_by

    # How they end

    def _run_is_gone(self, run: TrialRun) -> None:
        del self._runs[run.trial_id]
        trial = self._trial(run.trial_id)
        if trial.has_ended:
            return
        error = run.error or (run.ending.error if run.ending is not None else None)
        if error is not None:
            self._happen(ev.Ended(trial.trial_id, _text(error)))
        elif trial.awaits and (run.was_stopped or trial.awaits in ("STOP", "ERROR")):
            self._happen(self._experiment.after_the_end(trial))  # also if it came to its end before it was stopped
        elif not run.was_stopped:
            self._happen(ev.Ended(trial.trial_id))
        elif not self._letting_go:  # somebody stopped it
            self._happen(ev.Ended(trial.trial_id, "its run was stopped from outside"))

    def _end_if_over(self) -> None:
        if self._runs or self._starter.reserved or self._over or self._batch.has_open:
            self._idled = self._idled and not self._runs
            return
        if self._letting_go:
            self._over = True
            return
        experiment = self._experiment
        if not self._is_ready():
            return
        live = experiment.get_live_trials()
        if not live and (experiment.exhausted or experiment.stopping):
            self._end()
            return
        if any(trial.status == PENDING for trial in live) or (not live and not experiment.stopping):
            return  # they wait for room, or the searcher is to be asked again
        if live and not self._idled:
            self._idled = True
            self._happen(ev.Idled())
        elif live:
            self._idled = False
            for trial in live:
                if trial.status == PAUSED:
                    self._happen(ev.Ended(trial.trial_id, "", "it was paused, and nothing let it go on"))

    def _end(self) -> None:
        self._happen(ev.Over())
        self._batch.note([], self._finish)

    def _finish(self) -> None:
        self._over = True

    def _look_at_the_clock(self) -> None:
        experiment = self._experiment
        if not experiment.stopping and not self._letting_go and experiment.stopper.stop_all():
            self._happen(ev.StopDecided("the experiment's stop criterion is met"))
            while self._batch.write():
                self._settle()


def _stopped(running: int, at_once: bool) -> str:
    if not running:
        return ""
    who = "the trial that runs is" if running == 1 else f"the {running} trials that run are"
    return f": {who} stopped{' at once' if at_once else '; asked once more, at once'}"


def _reported(trial_id: str, said: Said) -> ev.Reported:
    metrics = said.metrics
    if said.checkpoint is not None:
        metrics["checkpoint_dir_name"] = said.checkpoint
    checkpoint = said.iteration if said.checkpoint is not None else None
    return ev.Reported(trial_id, said.iteration, metrics, checkpoint, time.time())


def _text(error: Exception) -> str:
    return message_of(error) or type(error).__name__
