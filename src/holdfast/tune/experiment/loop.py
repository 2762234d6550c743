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
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from holdfast.core import events as run_events
from holdfast.core.state import CheckpointRecord, Outcome
from holdfast.driver import interrupt
from holdfast.driver.plan import Plan
from holdfast.driver.recovery import read_past
from holdfast.driver.remote_storage import RemoteStorage
from holdfast.driver.storage import DiskStorage
from holdfast.engine.base import Engine, Inbox
from holdfast.errors import CheckpointDamagedError, StorageError
from holdfast.settings import Settings
from holdfast.store.journal import Record
from holdfast.tune.schedulers.trial_scheduler import PAUSED, PENDING, RUNNING
from holdfast.wire import messages as wire

from . import events as ev
from . import machine as do
from .adoption import adopt
from .hub import Hub, Share
from .machine import Experiment
from .replaying import Kept, entry_of, replay, unheard
from .storage import Books, TrialHistory
from .trial import Trial
from .trial_run import ForTrial, Said, TrialRun

log = logging.getLogger(__name__)
_BATCH = 1000
_TICK_S = 1.0  # how often time limits and reporters are looked at
_NODES_JOIN_WITHIN_S = 10.0


class Audience(Protocol):
    """Who is told what happens: callbacks, loggers, the display. Told of nothing that is not journalled."""

    def began(self, experiment: Experiment) -> None: ...
    def started(self, trial: Trial) -> None: ...
    def reported(self, trial: Trial, result: dict[str, Any]) -> None: ...
    def ended(self, trial: Trial) -> None: ...
    def stopping(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def output(self, name: str, rank: int, line: str) -> None: ...
    def turned(self) -> None:
        """A turn of the loop is over."""

    def finished(self, outcome: str, text: str) -> None: ...


@dataclass(frozen=True)
class Resumption:
    """What becomes of trials of an earlier driver: "resume", "restart" or "skip", by how they were left."""

    unfinished: str = "resume"
    errored: str = "skip"
    finished: str = "skip"


class ExperimentDriver:
    """``plan_of`` says how a trial runs. ``configure`` is what the agents are told first."""

    def __init__(
        self,
        experiment: Experiment,
        storage: DiskStorage | RemoteStorage,
        inbox: Inbox,
        engine: Engine,
        settings: Settings,
        audience: Audience,
        *,
        space: Mapping[str, Any],
        plan_of: Callable[[Trial], Plan],
        configure: wire.Configure,
        resumption: Resumption,
        max_concurrent: int = 0,
        score_attribute: str | None = None,
    ) -> None:
        self._experiment, self._storage, self._inbox, self._engine = experiment, storage, inbox, engine
        self._settings, self._audience = settings, audience
        self._space, self._plan_of, self._configure = space, plan_of, configure
        self._resumption, self._max_concurrent = resumption, max_concurrent
        self._score_attribute = score_attribute
        self._books = Books(storage)
        self._hub = Hub(engine)
        self._runs: dict[str, TrialRun] = {}
        self._histories: dict[str, TrialHistory] = {}  # of trials that have not ended
        self._reserved: dict[str, dict[str, Share]] = {}
        self._typical: Any = None  # the room that the last trial took
        self._waited_for: set[str] = set()
        self._began_at = time.monotonic()
        self._signal: int | None = None
        self._letting_go = ""  # why all that runs is to be stopped and left unfinished
        self._over = self._idled = False
        self._failed_fast: str | None = None
        self._kept: Kept = {}
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
            outcome = "stopped" if self._letting_go else "finished"
            text = self._letting_go
            return outcome
        except Exception as error:
            text = str(error)
            raise
        finally:
            self._close(self._hub.close)
            try:
                self._audience.finished(outcome, text)
            finally:
                self._close(lambda: self._books.sync_if_due(math.inf), lambda: self._storage.close(True))

    def replay(self, records: Iterable[Record]) -> None:
        """Bring the machine to where an earlier driver left it, and take in what that was about to write."""
        self._kept = replay(self._experiment, records, self._space)

    def begin(self, epoch: int) -> None:
        """This driver's first words, behind what was replayed."""
        self._epoch = epoch
        experiment = self._experiment
        self._spent_before = experiment.spent_s
        for trial_id, records in self._kept.items():
            self._hear_late(self._trial(trial_id), records)
        self._happen(ev.Began(epoch))
        for event in experiment.recover():
            self._happen(event)
        for trial in experiment.get_trials():
            for event in self._resume(trial):
                self._happen(event)
        for trial_id, records in self._kept.items():
            left = self._trial(trial_id)
            if not left.has_ended:
                self._histories[trial_id] = TrialHistory(trial_id, self._books, epoch, records)
                self._was_over(left, records)
        self._kept = {}

    def _hear_late(self, trial: Trial, records: list[Record]) -> None:
        if trial.has_ended or trial.awaits or trial.status != RUNNING:
            return
        for event in unheard(trial, self._experiment.home_of(trial), records, self._settings.storage_patience_s):
            self._happen(event)

    def _resume(self, trial: Trial) -> list[ev.Event]:
        how = self._resumption.unfinished
        if trial.has_ended:
            how = self._resumption.errored if trial.error and trial.status == "ERROR" else self._resumption.finished
        if trial.has_ended and how != "skip":
            return [ev.Resumed(trial.trial_id, anew=how == "restart")]
        if not trial.has_ended and how == "skip":
            return [ev.Skipped(trial.trial_id)]
        if not trial.has_ended and how == "restart":
            return [ev.Resumed(trial.trial_id, anew=True)]
        return []

    def _was_over(self, trial: Trial, records: list[Record]) -> None:
        """Its run had come to an end, and the driver died before it could say what that means."""
        ended = read_past(records).ended
        if trial.status == PENDING and ended is not None and ended.outcome is Outcome.FINISHED:
            self._happen(ev.Ended(trial.trial_id))

    def _start(self) -> None:
        self._audience.began(self._experiment)
        self._hub.open(self._configure, self._inbox)
        self._is_ready_by = time.monotonic() + _NODES_JOIN_WITHIN_S
        self._turn([])

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
        self._audience.stopping(f"{why}: {_running(len(self._runs))} stopped{' at once' if at_once else ''}")
        for run in self._runs.values():
            run.stop(at_once)

    # The loop

    def elapsed(self) -> float:
        return self._spent_before + time.monotonic() - self._began_at

    def _wait(self) -> list[Any]:
        due = min([time.monotonic() + _TICK_S, self._books.due(), *(run.due() for run in self._runs.values())])
        try:
            items = [self._inbox.get(timeout=max(0.0, due - time.monotonic()))]
        except queue.Empty:
            return []
        while len(items) < _BATCH and not self._inbox.empty():
            items.append(self._inbox.get())
        return items

    def _turn(self, items: list[Any]) -> None:
        self._hear(items)
        now = time.monotonic()
        for run in list(self._runs.values()):
            run.on_time(now)
        self._settle()
        while self._books.write():
            self._hear(self._heard())
            self._settle()
        self._books.sync_if_due(time.monotonic())
        self._audience.turned()
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
                self._hub.hear(*item)

    def _settle(self) -> None:
        """Take in what the trials have said and how they ended; then start what can be started."""
        for run in list(self._runs.values()):
            self._hear_reports(run)
            if run.is_over and run.is_gone and not run.said:
                self._run_is_gone(run)
            elif run.engine.wants_room:
                self._find_room(run)
        if not self._letting_go:
            self._fill()
        self._end_if_over()

    def _hear_reports(self, run: TrialRun) -> None:
        said, run.said = run.said, []
        for report in said:
            trial = self._trial(run.trial_id)
            if trial.awaits:
                continue
            self._happen(_reported(run.trial_id, report))
            if trial.last_result and trial.last_result.get("training_iteration") == report.iteration:
                self._books.note([], partial(self._audience.reported, trial, trial.last_result))

    def _happen(self, event: ev.Event) -> None:
        """The machine takes it in now; what follows is done when it is journalled."""
        commands = self._experiment.apply(event)
        for command in commands:
            if isinstance(command, do.FailFast):  # nothing is started from now on
                self._letting_go = f"{self._trial(command.trial)} failed, and fail_fast is set"
        self._books.note([entry_of(event, self._space)], lambda: self._act(event, commands))

    def _act(self, event: ev.Event, commands: list[do.Command]) -> None:
        if isinstance(event, (ev.Ended, ev.Skipped)):
            self._histories.pop(event.trial, None)
            self._audience.ended(self._trial(event.trial))
        for command in commands:
            match command:
                case do.Decide(decided):
                    self._happen(decided)
                case do.Run(trial_id):
                    self._run(self._trial(trial_id))
                case do.StopRun(trial_id):
                    if trial_id in self._runs:
                        self._runs[trial_id].stop()
                case do.LetGoOn(trial_id, iteration):
                    if trial_id in self._runs:
                        self._runs[trial_id].go_on(iteration)
                case do.FailFast(trial_id):
                    self._failed_fast = trial_id
                    self._let_go(self._letting_go)

    def _trial(self, trial_id: str) -> Trial:
        trial = self._experiment.get_trial(trial_id)
        assert trial is not None
        return trial

    # Trials start and end

    def _fill(self) -> None:
        experiment = self._experiment
        if not self._hub.is_settled and time.monotonic() < self._is_ready_by:
            return
        if experiment.scheduler.needs_population:
            while (added := experiment.propose()) is not None:
                self._happen(added)
        while self._may_start():
            trial = experiment.next_to_run()
            if trial is None:
                if not self._seems_to_fit() or (added := experiment.propose()) is None:
                    break
                self._typical = added.resources
                self._happen(added)
                continue
            shares = self._hub.place(trial.resources)
            if shares is None:
                if not self._can_never_fit(trial):
                    self._say_what_is_waited_for(trial)
                    break
                continue
            self._typical = trial.resources
            self._reserved[trial.trial_id] = shares
            self._exploit(trial)
            self._happen(ev.Started(trial.trial_id, time.time()))

    def _may_start(self) -> bool:
        busy = len(self._runs) + len(self._reserved)
        return not self._max_concurrent or busy < self._max_concurrent

    def _seems_to_fit(self) -> bool:
        """Whether another trial like the last one would find room, so that it is time to ask the searcher for it."""
        if self._typical is None:
            return True
        shares = self._hub.place(self._typical)
        if shares is None:
            return False
        self._hub.give_back(shares)
        return True

    def _can_never_fit(self, trial: Trial) -> bool:
        if self._hub.grows or not self._hub.is_settled or self._hub.can_ever(trial.resources):
            return False
        asked = " + ".join(str(dict(bundle)) for bundle in trial.resources)
        there = {name: amount for name, amount in self._hub.total().items() if amount}
        self._happen(ev.Ended(trial.trial_id, f"it asks for {asked}, and there is only {there}: use with_resources"))
        return True

    def _say_what_is_waited_for(self, trial: Trial) -> None:
        if self._runs or trial.trial_id in self._waited_for or not self._hub.grows:
            return  # it is its turn when another one has ended
        self._waited_for.add(trial.trial_id)
        asked = " + ".join(str(dict(bundle)) for bundle in trial.resources)
        there = {name: amount for name, amount in self._hub.total().items() if amount}
        self._audience.warn(f"{trial} waits for {asked}; the nodes have {there or 'nothing'} now")

    def _exploit(self, trial: Trial) -> None:
        request = trial.donor
        if request is None:
            return
        donor = self._trial(request.donor_id)
        where = self._experiment.home_of(donor), self._experiment.home_of(trial)
        number = request.checkpoint if request.checkpoint is not None else donor.checkpoint_number
        try:
            record: CheckpointRecord = adopt(
                *where, number, f"x{trial.exploits + 1}", self._score_attribute, self._settings.storage_patience_s
            )
        except (CheckpointDamagedError, StorageError) as error:
            trial.donor = None
            self._audience.warn(f"{trial} goes on from its own checkpoint: {error}")
            return
        history = self._history(trial)
        event = run_events.Adopted(record)
        history.write([(type(event).__name__, msgspec.to_builtins(event))], lambda: None)
        self._happen(ev.Exploited(trial.trial_id, request.donor_id, record.report, dict(request.config)))

    def _history(self, trial: Trial) -> TrialHistory:
        if trial.trial_id not in self._histories:
            self._histories[trial.trial_id] = TrialHistory(trial.trial_id, self._books, self._epoch)
        return self._histories[trial.trial_id]

    def _run(self, trial: Trial) -> None:
        shares = self._reserved.pop(trial.trial_id)
        try:
            plan = self._plan_of(trial)
        except Exception as error:
            self._hub.give_back(shares)
            self._happen(ev.Ended(trial.trial_id, f"it could not be started: {error}"))
            return
        run = TrialRun(
            trial.trial_id,
            trial.name,
            plan,
            self._hub,
            shares,
            self._history(trial),
            self._settings,
            self._inbox,
            self._audience.warn,
            self._audience.output,
        )
        self._runs[trial.trial_id] = run
        self._idled = False
        self._audience.started(trial)
        run.start()

    def _find_room(self, run: TrialRun) -> None:
        """For a trial that lost a node, or will."""
        trial = self._trial(run.trial_id)
        lacking = self._hub.lacking(run.engine.run, trial.resources)
        if not lacking:
            run.engine.wants_room = False
            return
        shares = self._hub.place(lacking)
        if shares is not None:
            run.engine.wants_room = False
            self._hub.give_more(run.engine.run, shares)

    def _run_is_gone(self, run: TrialRun) -> None:
        del self._runs[run.trial_id]
        trial = self._trial(run.trial_id)
        if trial.has_ended:
            return
        error = run.error or (run.ending.error if run.ending is not None else None)
        if error is not None:
            self._happen(ev.Ended(trial.trial_id, _text(error)))
        elif not run.was_stopped:
            self._happen(ev.Ended(trial.trial_id))
        elif trial.awaits:
            self._happen(self._experiment.after_the_end(trial))
        elif not self._letting_go:  # somebody stopped it
            self._happen(ev.Ended(trial.trial_id, "its run was stopped from outside"))

    def _end_if_over(self) -> None:
        if self._runs or self._reserved or self._over or self._books.has_entries:
            return
        if self._letting_go:
            self._over = True
            return
        experiment = self._experiment
        if not self._hub.is_settled and time.monotonic() < self._is_ready_by:
            return
        live = experiment.get_live_trials()
        if not live and (experiment.exhausted or experiment.stopping):
            self._happen(ev.Over())
            self._books.note([], self._finish)
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

    def _finish(self) -> None:
        self._over = True

    def _look_at_the_clock(self) -> None:
        experiment = self._experiment
        if not experiment.stopping and not self._letting_go and experiment.stopper.stop_all():
            self._happen(ev.StopDecided("the experiment's stop criterion is met"))
            while self._books.write():
                self._settle()


def _running(count: int) -> str:
    return "the trial that runs is" if count == 1 else f"the {count} trials that run are"


def _reported(trial_id: str, said: Said) -> ev.Reported:
    metrics = dict(said.metrics)
    if said.checkpoint is not None:
        metrics["checkpoint_dir_name"] = said.checkpoint
    checkpoint = said.iteration if said.checkpoint is not None else None
    return ev.Reported(trial_id, said.iteration, metrics, checkpoint, time.time())


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
