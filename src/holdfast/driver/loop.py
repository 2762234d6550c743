"""The driver's loop: take what happened, journal what must survive, step the core, carry out its commands.

It decides nothing. All that comes in, from agents, the storage thread, signals and timers, comes through one inbox.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import signal
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import msgspec

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.observer import Nobody, Observer
from holdfast.core.run.state import Outcome, RunState
from holdfast.core.run.timers import Timer
from holdfast.engine.engine_interface import Engine, Inbox
from holdfast.errors import ControllerError, NotARunError, StorageError, message_of
from holdfast.platform import interrupt, open_files
from holdfast.runs.experiments import is_experiment
from holdfast.runs.past import IDENTITY, read_past
from holdfast.runs.stored_run import closing_account
from holdfast.settings import Settings
from holdfast.store.runfile import id_of
from holdfast.wire.worker_messages import GoOn

from . import display as displays
from .beginning import Beginning
from .configuration import configuration
from .desk import Desk
from .ears import Ears
from .fleet import Fleet
from .hands import Hands
from .lag import Lag
from .plan import Ending, Plan
from .remote_storage import RemoteStorage
from .showing import closing_words, show
from .storage import DiskStorage
from .storage_place import storage_at

log = logging.getLogger(__name__)
_BATCH = 1000


class _Turn(NamedTuple):
    event: ev.Event
    before: RunState
    after: RunState
    commands: list[do.Command]


class Driver:
    """``run`` drives a run to its end. Who drives several of them calls ``open`` and ``start``, then ``take_in`` with
    what comes into the inbox and when something is ``due``, until it ``is_over``, then ``ending`` and ``close``."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        settings: Settings,
        *,
        inbox: Inbox | None = None,
        storage: DiskStorage | RemoteStorage | None = None,
        display: displays.Display | None = None,
        observer: Observer | None = None,
    ) -> None:
        inbox = queue.SimpleQueue() if inbox is None else inbox
        storage = storage or storage_at(plan.location, inbox, settings, plan.score_attribute)
        address = cloudpickle.dumps(plan.location) if storage.remote else b""
        fleet = Fleet(plan, engine, configuration(plan, settings, address))
        lag = Lag(lambda: storage.run_dir.parent, settings.staging_limit_gb, fleet.size)
        display = display or displays.make(plan.display)
        self._desk = Desk(plan, inbox, storage, fleet, display, observer or Nobody(), lag)
        self._beginning = Beginning(self._desk, self._work_off)
        self._ears = Ears(self._desk, self._beginning, self._work_off)
        self._hands = Hands(self._desk, self._beginning)
        self._signal: int | None = None

    def run(self) -> Ending:
        """Run to the end. A killed driver's run goes on from where its journal and checkpoints leave it."""
        self._desk.epoch = self._desk.storage.acquire()
        try:
            try:
                self._open()
            except BaseException:
                with contextlib.suppress(StorageError, OSError):
                    self._desk.storage.close(all_stored=False)
                raise
            with interrupt.handled(self.ask_to_stop):
                return self._until_the_end()
        finally:
            self.release()

    def open(self) -> None:
        """Take the run over from whoever had it before."""
        self._desk.epoch = self._desk.storage.acquire()
        self._open()

    def _open(self) -> None:
        desk = self._desk
        records, damage = desk.storage.open()
        try:
            desk.past = read_past(records)
        except msgspec.ValidationError as error:
            raise StorageError(
                f"This version of Holdfast cannot read the journal of {desk.plan.location} ({error}). "
                "Upgrade Holdfast: pip install --upgrade holdfast"
            ) from error
        self._known = self._known_identity()
        if is_experiment(self._known or desk.past.identity or {}):
            raise NotARunError(
                f"{desk.plan.location} is an experiment of a Tuner, not a training run: "
                "give another RunConfig(name=...)"
            )
        self._identity = {**desk.plan.identity, "id": id_of(self._known, desk.past.identity)}
        desk.storage.settle(self._identity["id"])
        desk.state = RunState(desk.past.state)
        found, more_damage = desk.storage.take_stock(desk.past)
        desk.queue.extend(found)
        self._warnings = [f"{d.path} is damaged ({d.where}): {d.what}" for d in [*damage, *more_damage]]
        if desk.past.ended is not None and desk.past.ended.outcome is Outcome.FINISHED:
            self._warnings.append(
                f"the run {desk.plan.name!r} had finished already; it goes on from its last checkpoint, if it has one. "
                "Give another RunConfig(name=...) to start a new run."
            )

    def _until_the_end(self) -> Ending:
        desk = self._desk
        desk.display.start(desk.plan.name, str(desk.plan.location), None)
        outcome, text = "failed", ""
        try:
            self.start()
            while not self.is_over:
                self.take_in(self._wait())
            ending = self.ending()
            outcome = ending.outcome.value
            text = "\n".join(filter(None, (closing_words(desk, ending), self._account())))
            return ending
        except Exception as error:
            text = f"the driver could not go on: {message_of(error)}"
            raise self.failed(error) from error
        finally:
            self.close()
            desk.display.finish(outcome, text)

    def start(self) -> None:
        """Ask for nodes. The machine begins when they are there."""
        for warning in self._warnings:
            self._desk.warn(warning)
        self._identify()
        self._desk.fleet.open(self._desk.inbox, self._desk.storage)
        self._beginning.start(lambda: self.take_in(self._heard()))

    @property
    def is_over(self) -> bool:
        return self._hands.finish is not None

    @property
    def state(self) -> RunState:
        return self._desk.state

    def due(self) -> float:
        """When ``take_in`` is to be called even if nothing has come in; by the monotonic clock, endless for never."""
        return min(self._desk.timers.values(), default=math.inf)

    def let_go_on(self, report: int) -> None:
        """In lockstep: the workers may go on behind this report of the run."""
        state = self.state
        index = report - state.base - 1
        for rank in range(len(state.ranks)):
            self._desk.fleet.tell(GoOn(state.generation, rank, index))

    def release(self) -> None:
        """Let another driver have the run."""
        self._desk.storage.release()

    def close_session(self) -> None:
        """Let the nodes go; the rest is for ``close``."""
        self._desk.fleet.close()

    def failed(self, error: Exception) -> ControllerError:
        """The driver cannot go on."""
        self._record_end(message_of(error))
        remedy = open_files.remedy(error) or "Mend the cause"
        return ControllerError(error, f"{remedy}, and {self._desk.plan.how_to_go_on}")

    def _account(self) -> str:
        """Where the time went, unless the reports of an earlier driver would have to be fetched for that."""
        storage = self._desk.storage
        known = (storage.home.metrics_file(group.generation, 0).exists() for group in self._desk.past.groups)
        return closing_account(storage.records(), storage.home) if not storage.remote or all(known) else ""

    def _identify(self) -> None:
        """Write down what the run is, twice, so that damage to one place leaves the other."""
        storage, identity = self._desk.storage, self._identity
        if self._known != identity:
            storage.write_identity(identity)
        if self._desk.past.identity != identity:
            storage.write([(IDENTITY, identity)], lambda: None)

    def _known_identity(self) -> dict[str, Any] | None:
        try:
            return self._desk.storage.read_identity()
        except StorageError:
            return None

    def close(self) -> None:
        """End everything that was started. What was staged and complete has been made durable by now, or never is."""
        desk = self._desk
        all_stored = self.is_over and not desk.state.unsaved and not self._beginning.left_on_nodes
        close_book = partial(desk.book.close, sync=not desk.storage.has_reports_too)
        for close in (desk.fleet.close, desk.requests.close, close_book, partial(desk.storage.close, all_stored)):
            try:
                close()
            except Exception as error:  # the others are closed all the same
                log.warning("%s", error)

    def _record_end(self, reason: str) -> None:
        """Best effort: the driver is failing, maybe because it cannot write."""
        try:
            self._desk.storage.write_last([_journalled(ev.RunEnded(Outcome.FAILED, reason))])
        except Exception as error:
            if str(error) != reason:  # else the run is lost, which is why it ends
                log.warning("the end of the run could not be journalled: %s", error)

    def ask_to_stop(self, number: int, at_once: bool) -> None:
        self._signal = number
        grace_s = self._desk.plan.preemption_grace_s if number == signal.SIGTERM else 0.0
        self._desk.inbox.put(ev.StopAsked(at_once, grace_s))

    def ending(self) -> Ending:
        desk, finish = self._desk, self._hands.finish
        assert finish is not None
        if finish.outcome is Outcome.FAILED:
            error = desk.accounts.error(desk.state.durable, desk.plan.how_to_go_on, desk.handing_over.notice)
            return Ending(finish.outcome, error)
        value = cloudpickle.loads(desk.returned[0]) if 0 in desk.returned else None
        return Ending(finish.outcome, None, value, self._signal)

    # The loop

    def _wait(self) -> list[Any]:
        """The next things that happened; empty when a timer is due."""
        due = self.due()
        timeout = None if due == math.inf else max(0.0, due - time.monotonic())
        try:
            return [self._desk.inbox.get(timeout=timeout), *self._heard()]
        except queue.Empty:
            return []

    def _heard(self) -> list[Any]:
        """What is in the inbox already."""
        inbox = self._desk.inbox
        items: list[Any] = []
        while len(items) < _BATCH and not inbox.empty():
            items.append(inbox.get())
        return items

    def take_in(self, items: Iterable[Any]) -> None:
        desk = self._desk
        desk.storage.check_lease()
        for item in items:
            if isinstance(item, ev.Event):
                if isinstance(item, ev.StopAsked) and not self._beginning.is_over:
                    self._beginning.cut_short()
                desk.queue.append(item)
            elif isinstance(item, Exception):
                raise item
            elif callable(item):
                item()
            else:
                self._ears.hear(*item)
        now = time.monotonic()
        for timer in [timer for timer, due in desk.timers.items() if due <= now]:
            del desk.timers[timer]
            if isinstance(timer, Timer):
                desk.queue.append(ev.TimerFired(timer))
            else:
                self._beginning.time_is_up()
        self._work_off()

    def _work_off(self) -> None:
        """Step what has come in, journal it with one sync, and only then act on it."""
        desk = self._desk
        while desk.queue:
            turns: list[_Turn] = []
            while desk.queue:
                self._step(desk.queue.popleft(), turns)
            entries = [_journalled(turn.event) for turn in turns if turn.event.durable]
            desk.storage.write(entries, partial(self._act, turns))
            news = (desk.lag.look(desk.state), desk.handing_over.settle(desk.state))
            desk.queue.extend(event for event in news if event is not None)
        desk.requests.settle(desk.state)

    def _step(self, event: ev.Event, turns: list[_Turn]) -> None:
        """One event, and at once the decisions that the core takes on it: nothing else may come in between."""
        before = self._desk.state
        self._desk.state, commands, reason = core.step(before, event, time.monotonic())
        log.debug("%s: %s", type(event).__name__, reason)
        turns.append(_Turn(event, before, self.state, [c for c in commands if not isinstance(c, do.Decide)]))
        for command in commands:
            if isinstance(command, do.Decide):
                self._step(self._located(command.event), turns)

    def _located(self, event: ev.Event) -> ev.Event:
        """The core knows ranks alone; a group that it starts, a failure that it declares, is on nodes all the same."""
        if isinstance(event, ev.GroupStarted):
            return msgspec.structs.replace(event, leased=tuple(self._desk.fleet.roster.leased(event.world_size)))
        if not isinstance(event, ev.WorkerFailed):
            return event
        return msgspec.structs.replace(event, node=self._desk.fleet.node_of(event.generation, event.rank))

    def _act(self, turns: list[_Turn]) -> None:
        for event, before, after, commands in turns:
            if isinstance(event, ev.Committed):
                self._is_durable(event)
            show(self._desk, event, before, after)
            for command in commands:
                self._hands.carry_out(command)
        self._desk.book.call_back(self._first_on_their_way(turns[-1].after))

    def _first_on_their_way(self, acted_on: RunState) -> dict[int, int]:
        """By generation, the first report whose checkpoint is pending. The state acted on may be older than the present
        one, because remote storage writes the journal behind the loop, and reports may wait to be stepped."""
        queued = [(e.generation, e.index) for e in self._desk.queue if isinstance(e, ev.ShardStaged)]
        unsaved = [(p.generation, p.index) for p in (*acted_on.unsaved, *self.state.unsaved)]
        return dict(sorted({*queued, *unsaved}, reverse=True))

    def _is_durable(self, event: ev.Committed) -> None:
        desk = self._desk
        if event.validation is not None:
            desk.past.validations[event.record.id] = event.validation
        if event.index < 0:
            return
        desk.fleet.is_durable(event.generation, event.index, event.record.id)
        desk.book.committed(event.generation, event.index, event.record.id)


def _journalled(event: ev.Event) -> tuple[str, dict[str, Any]]:
    return type(event).__name__, msgspec.to_builtins(event)
