"""The driver's loop: take what happened, journal what must survive, step the core, carry out its commands.

It decides nothing. All that comes in, from agents, the storage thread, signals and timers, comes through one inbox.
"""

from __future__ import annotations

import logging
import math
import queue
import signal
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import msgspec

from holdfast.core import commands as do
from holdfast.core import events as ev
from holdfast.core import run as core
from holdfast.core.failures import Evidence
from holdfast.core.state import (
    HandoverReason,
    Outcome,
    Phase,
    RunState,
    ValidationStatus,
    Verdict,
)
from holdfast.engine.base import Engine, Inbox
from holdfast.errors import CheckpointDamagedError, ControllerError, StorageError
from holdfast.settings import Settings
from holdfast.store.checkpoints import Manifest
from holdfast.store.layout import RunLayout
from holdfast.wire import messages as wire

from . import display as displays
from . import interrupt
from .accounts import Accounts, evidence_of
from .adoption import Adoption
from .fleet import Fleet, configuration
from .handing_over import HandingOver
from .history import closing_account
from .lag import Lag
from .observer import Nobody, Observer
from .plan import Ending, Plan
from .recovery import IDENTITY, read_past, score_of
from .remote_storage import RemoteStorage, scratch_of
from .reports import ReportBook, metrics_in
from .requests import Requests
from .stacks import Stacks
from .storage import DiskStorage
from .verification import Verification

log = logging.getLogger(__name__)
_NODES_JOIN = "nodes join"  # a timer of the loop's own: nodes that are there at the start are waited for
_NODES_JOIN_WITHIN_S = 10.0
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
        self._plan = plan
        self._inbox: Inbox = queue.SimpleQueue() if inbox is None else inbox
        self._storage: DiskStorage | RemoteStorage = storage or _storage(plan, self._inbox, settings)
        run_dir = self._storage.home.root.parent if self._storage.remote else self._storage.home.root
        address = cloudpickle.dumps(plan.location) if self._storage.remote else b""
        self._lag = Lag(self._storage.home.root.parent, settings.staging_limit_gb, self._size)
        self._fleet = Fleet(plan, engine, configuration(plan, settings, run_dir, address))
        self._display = display or displays.make(plan.display)
        self._observer = observer or Nobody()
        self._state = RunState()
        self._timers: dict[str, float] = {}
        self._queue: deque[ev.Event] = deque()
        self._arguments: dict[tuple[int, int], Any] = {}  # validation arguments by (generation, index)
        self._returned: dict[int, bytes] = {}
        self._finish: do.Finish | None = None
        self._signal: int | None = None
        self._adoption: Adoption | None = None  # until the machine has begun
        self._begun = False
        self._found: list[ev.Event] | None = None  # what an earlier driver left, when that is known
        self._verification = Verification(self._fleet, self._storage)
        self._handing_over = HandingOver(self._fleet)
        self._stacks = Stacks()
        self._left_on_nodes = False  # something that an earlier driver had there

    def run(self) -> Ending:
        """Run to the end. A killed driver's run goes on from where its journal and checkpoints leave it."""
        self._epoch = self._storage.acquire()
        try:
            self._open()
            with interrupt.handled(self.ask_to_stop):
                return self._until_the_end()
        finally:
            self.release()

    def open(self) -> None:
        """Take the run over from whoever had it before."""
        self._epoch = self._storage.acquire()
        self._open()

    def _open(self) -> None:
        plan = self._plan
        self._book = ReportBook(self._storage.home, plan.on_report)
        self._accounts = Accounts(self._storage.log_address)
        self._requests = Requests(self._fleet.tell, self._list_checkpoints)
        records, damage = self._storage.open()
        self._past = read_past(records)
        self._state = self._past.state
        found, more_damage = self._storage.take_stock(self._past)
        self._queue.extend(found)
        self._warnings = [f"{d.path} is damaged ({d.where}): {d.what}" for d in [*damage, *more_damage]]
        if self._past.ended is not None and self._past.ended.outcome is Outcome.FINISHED:
            self._warnings.append(
                f"the run {plan.name!r} had finished already; it goes on from its last checkpoint, if it has one. "
                "Give another RunConfig(name=...) to start a new run."
            )

    def _until_the_end(self) -> Ending:
        self._display.start(self._plan.name, str(self._plan.location), None)
        outcome, text = "failed", ""
        try:
            self.start()
            while not self.is_over:
                self.take_in(self._wait())
            ending = self.ending()
            outcome, text = ending.outcome.value, self._closing_words(ending)
            text = "\n".join(filter(None, (text, self._account())))
            return ending
        except Exception as error:
            text = f"the driver could not go on: {error}"
            raise self.failed(error) from error
        finally:
            self.close()
            self._display.finish(outcome, text)

    def start(self) -> None:
        """Ask for nodes. The machine begins when they are there."""
        for warning in self._warnings:
            self._warn(warning)
        self._identify()
        self._fleet.open(self._inbox)
        if self._fleet.grows:
            self._timers[_NODES_JOIN] = time.monotonic() + _NODES_JOIN_WITHIN_S
        if isinstance(self._storage, RemoteStorage):
            self._adoption = Adoption(self._fleet, self._storage, self._took_stock)
        else:
            self.take_in(self._heard())  # the engine has said which nodes are on their way
            self._took_stock([])

    @property
    def is_over(self) -> bool:
        return self._finish is not None

    @property
    def state(self) -> RunState:
        return self._state

    def due(self) -> float:
        """When ``take_in`` is to be called even if nothing has come in; by the monotonic clock, endless for never."""
        return min(self._timers.values(), default=math.inf)

    def let_go_on(self, report: int) -> None:
        """In lockstep: the workers may go on behind this report of the run."""
        index = report - self._state.base - 1
        for rank in range(len(self._state.ranks)):
            self._fleet.tell(wire.GoOn(self._state.generation, rank, index))

    def release(self) -> None:
        """Let another driver have the run."""
        self._storage.release()

    def close_session(self) -> None:
        """Let the nodes go; the rest is for ``close``."""
        self._fleet.close()

    def failed(self, error: Exception) -> ControllerError:
        """The driver cannot go on."""
        self._record_end(str(error))
        return ControllerError(error, f"Mend the cause and {self._plan.how_to_go_on}")

    def _account(self) -> str:
        """Where the time went, unless the reports of an earlier driver would have to be fetched for that."""
        home = self._storage.home
        known = (home.metrics_file(group.generation, 0).exists() for group in self._past.groups)
        return closing_account(self._storage.records(), home) if not self._storage.remote or all(known) else ""

    def _took_stock(self, found: list[ev.Event]) -> None:
        """What an earlier driver left is known; nodes that are on their way are waited for."""
        self._found = found
        if not self._begun and (self._fleet.roster.is_settled or not self._fleet.grows):
            self._begin()

    def _begin_anyway(self) -> None:
        """Nodes are long in coming. What one that is there has is still brought into storage first."""
        if self._found is None and self._fleet.roster.ids:
            self._timers[_NODES_JOIN] = time.monotonic() + _NODES_JOIN_WITHIN_S
            return
        self._left_on_nodes = self._found is None
        self._begin()

    def _begin(self) -> None:
        """The machine takes over."""
        self._begun, self._adoption = True, None
        self._timers.pop(_NODES_JOIN, None)
        self._queue.extend(self._found or [])
        if isinstance(self._storage, RemoteStorage):
            self._storage.collect(keep=self._stored())
        if self._fleet.grows:
            self._queue.append(ev.Capacity(self._fleet.slots()))
        self._queue.append(ev.DriverStarted(self._epoch, self._plan.spec))
        self._work_off()

    def _stored(self) -> set[str]:
        """The ids of the committed checkpoints, and of those that have just been found."""
        found = (event.record.id for event in self._queue if isinstance(event, ev.Committed))
        return {c.id for c in self._state.checkpoints}.union(found)

    def _identify(self) -> None:
        """Write down what the run is, twice, so that damage to one place leaves the other."""
        identity = dict(self._plan.identity)
        try:
            known: Any = self._storage.read_identity()
        except StorageError:
            known = None
        if known != identity:
            self._storage.write_identity(identity)
        if self._past.identity != identity:
            self._storage.write([(IDENTITY, identity)], lambda: None)

    def close(self) -> None:
        """End everything that was started. What was staged and complete has been made durable by now, or never is."""
        all_stored = self._finish is not None and not self._state.unsaved and not self._left_on_nodes
        close_book = partial(self._book.close, sync=not self._storage.has_reports_too)
        for close in (self._fleet.close, close_book, partial(self._storage.close, all_stored)):
            try:
                close()
            except Exception as error:  # the others are closed all the same
                log.warning("%s", error)

    def _record_end(self, reason: str) -> None:
        """Best effort: the driver is failing, maybe because it cannot write."""
        try:
            self._storage.write_last([_journalled(ev.RunEnded(Outcome.FAILED, reason))])
        except Exception as error:
            log.warning("the end of the run could not be journalled: %s", error)

    def ask_to_stop(self, number: int, at_once: bool) -> None:
        self._signal = number
        grace_s = self._plan.preemption_grace_s if number == signal.SIGTERM else 0.0
        self._inbox.put(ev.StopAsked(at_once, grace_s))

    # The loop

    def _wait(self) -> list[Any]:
        """The next things that happened; empty when a timer is due."""
        due = self.due()
        timeout = None if due == math.inf else max(0.0, due - time.monotonic())
        try:
            return [self._inbox.get(timeout=timeout), *self._heard()]
        except queue.Empty:
            return []

    def _heard(self) -> list[Any]:
        """What is in the inbox already."""
        items: list[Any] = []
        while len(items) < _BATCH and not self._inbox.empty():
            items.append(self._inbox.get())
        return items

    def take_in(self, items: Iterable[Any]) -> None:
        for item in items:
            if isinstance(item, ev.Event):
                if isinstance(item, ev.StopAsked) and not self._begun:
                    self._left_on_nodes = True  # and stays there for the next driver
                    self._begin()
                self._queue.append(item)
            elif isinstance(item, Exception):
                raise item
            elif callable(item):
                item()
            else:
                self._hear(*item)
        now = time.monotonic()
        for name in [name for name, due in self._timers.items() if due <= now]:
            del self._timers[name]
            if name == _NODES_JOIN:
                self._begin_anyway()
            else:
                self._queue.append(ev.TimerFired(name))
        self._work_off()

    def _work_off(self) -> None:
        """Step what has come in, journal it with one sync, and only then act on it."""
        while self._queue:
            turns: list[_Turn] = []
            while self._queue:
                self._step(self._queue.popleft(), turns)
            entries = [_journalled(turn.event) for turn in turns if turn.event.durable]
            self._storage.write(entries, partial(self._act, turns))
            news = (self._lag.look(self._state), self._handing_over.settle(self._state))
            self._queue.extend(event for event in news if event is not None)
        self._requests.settle(self._state)

    def _act(self, turns: list[_Turn]) -> None:
        for turn in turns:
            self._note(turn)
            for command in turn.commands:
                self._carry_out(command)
        self._book.call_back(next(iter(turns[-1].after.pending), math.inf))

    def _step(self, event: ev.Event, turns: list[_Turn]) -> None:
        """One event, and at once the decisions that the core takes on it: nothing else may come in between."""
        before = self._state
        self._state, commands, reason = core.step(before, event, time.monotonic())
        log.debug("%s: %s", type(event).__name__, reason)
        turns.append(_Turn(event, before, self._state, [c for c in commands if not isinstance(c, do.Decide)]))
        for command in commands:
            if isinstance(command, do.Decide):
                self._step(self._located(command.event), turns)

    def _located(self, event: ev.Event) -> ev.Event:
        """The core knows ranks alone; a failure that it declares counts for a node all the same."""
        if not isinstance(event, ev.WorkerFailed):
            return event
        return msgspec.structs.replace(event, node=self._fleet.node_of(event.generation, event.rank))

    def _note(self, turn: _Turn) -> None:
        """Show what changed to the person and to the callbacks."""
        event, before, state, show = turn.event, turn.before, turn.after, self._display
        self._observer.saw(event, before, state)
        if state.failure is not None and state.failure is not before.failure:
            show.failure(state.failure.text, self._accounts.action(state))
            if self._plan.on_failure is not None:
                self._plan.on_failure(self._accounts.exceptions())
        if isinstance(event, ev.Committed):
            self._is_durable(event)
        if isinstance(event, ev.StorageLags):
            self._say_how_far_behind(event, before.stalled)
        if len(state.unsaved) != len(before.unsaved):
            show.pending(len(state.unsaved), self._lag.behind.bytes)
        if [r.status for r in state.ranks] != [r.status for r in before.ranks]:
            show.workers({rank: r.status.value for rank, r in enumerate(state.ranks)})
        if state.phase is not before.phase:
            show.state(state.phase.value, _detail(state))

    def _say_how_far_behind(self, event: ev.StorageLags, stalled_before: bool) -> None:
        behind = self._lag.behind
        if event.stalled:
            self._warn(f"training waits for storage, which is behind by {behind}")
        elif stalled_before:
            self._warn(f"storage has caught up ({behind} left): training goes on")
        else:
            self._warn(f"storage is behind by {behind}; training goes on meanwhile")

    def _is_durable(self, event: ev.Committed) -> None:
        if event.index < 0:
            return
        self._fleet.is_durable(event.generation, event.index, event.record.id)
        if event.validation is not None:
            self._past.validations[event.record.id] = event.validation
        self._display.checkpoint(event.record.id, event.record.report)
        if event.generation == self._state.generation:
            self._book.committed(event.index, event.record.id)

    # What the agents say

    def _hear(self, node: str, message: wire.Message) -> None:
        match message:
            case wire.Reports():
                self._hear_reports(node, message)
            case wire.Sealed():
                self._hear_sealed(message)
            case wire.WorkerIsReady(generation, rank):
                self._queue.append(ev.WorkerReady(generation, rank))
            case wire.WorkerHasReturned(generation, rank, body):
                self._returned[rank] = body
                if generation == self._state.generation:
                    self._book.returned(rank)
                self._queue.append(ev.WorkerReturned(generation, rank))
            case wire.WorkerHasFailed():
                self._work_off()  # the reports before it tell where it failed
                self._accounts.add(message)
                self._worker_failed(message.generation, message.rank, evidence_of(message))
            case wire.WorkerIsStopped(generation, rank, stopped):
                self._queue.append(ev.WorkerStopped(generation, rank, stopped))
            case wire.WorkersGone(generation):
                if self._fleet.is_gone(node, generation):
                    self._queue.append(ev.GroupGone(generation))
            case wire.WorkerNoticed():
                self._handing_over.noticed(message, self._state)
                self._queue.extend(filter(None, [self._handing_over.settle(self._state)]))
            case wire.Stacks():
                self._hear_stacks(message)
            case wire.Probed(ok, findings):
                self._hear_probe(node, ok, findings)
            case wire.DoorOpen() | wire.Met():
                self._hear_of_peers(node, message)
            case wire.Asked():
                self._work_off()  # a request counts on the reports before it
                self._requests.add(message)
            case wire.TaskDone():
                self._hear_task(message)
            case wire.Output(rank, lines):
                for line in lines:
                    self._display.output(rank, line)
            case wire.Uploaded() | wire.Fetched() | wire.StagedLost():
                self._hear_storage(node, message)
            case wire.NodeJoining() | wire.NodeReady() | wire.NodeSeats() | wire.NodeDraining() | wire.NodeLost():
                self._hear_of_node(message)

    def _hear_of_node(
        self, message: wire.NodeJoining | wire.NodeReady | wire.NodeSeats | wire.NodeDraining | wire.NodeLost
    ) -> None:
        fleet, node = self._fleet, message.node_id
        match message:
            case wire.NodeJoining():
                fleet.roster.joining(node)
            case wire.NodeReady():
                fleet.ready(message)
                if fleet.grows:
                    fleet.probe(node)
                self._take_over(node, message.unsaved)
            case wire.NodeSeats(_, seats):
                fleet.roster.seat(node, seats)
            case wire.NodeDraining(_, deadline_s):
                fleet.roster.drain(node)
                self._warn(f"{node} will be taken away in {deadline_s:.0f} s")
                ranks = tuple(fleet.ranks_on(self._state.generation, [node])[node])
                self._queue.append(ev.NodeDrains(node, deadline_s, ranks))
            case wire.NodeLost():
                self._node_lost(node)
        if not self._begun:
            if self._found is not None:
                self._took_stock(self._found)
        elif fleet.grows:
            self._queue.append(ev.Capacity(fleet.slots()))

    def _take_over(self, node: str, unsaved: list[bytes]) -> None:
        """What a node has that is not in storage, as far as it knows."""
        if self._adoption is not None:
            self._adoption.begin(node, unsaved, self._past, self._stored())
        elif not self._left_on_nodes:
            self._fleet.sort_out(unsaved, self._stored())

    def _hear_reports(self, node: str, message: wire.Reports) -> None:
        newest = self._book.add(message)
        generation, rank = message.generation, message.rank
        for report in message.reports:
            if report.staged:
                arguments = msgspec.json.decode(report.validation) if report.validation else None
                validate = arguments is not None and self._plan.validation is not None
                if validate:
                    self._arguments[generation, report.index] = arguments
                where = (generation, rank, report.index)
                self._queue.append(ev.ShardStaged(*where, report.name, validate, report.urgent))
                if report.elsewhere:
                    self._hear_sealed(wire.Sealed(*where, report.elsewhere))
                else:
                    self._fleet.seal(node, *where)
        last = message.reports[-1]
        if not last.staged:
            self._queue.append(ev.Progressed(generation, rank, last.index + 1))
        if newest is not None and generation == self._state.generation:
            self._display.progress(self._state.base + last.index + 1, metrics_in(newest))

    def _hear_sealed(self, message: wire.Sealed) -> None:
        self._fleet.sealed(message)
        where = (message.generation, message.rank, message.index)
        self._queue.append(ev.ShardFailed(*where, message.error) if message.error else ev.ShardSealed(*where))

    def _hear_storage(self, node: str, message: wire.Uploaded | wire.Fetched | wire.StagedLost) -> None:
        match message:
            case wire.StagedLost(id, why):
                self._queue.append(ev.StagedLost(id, why))
            case wire.Uploaded(generation, index, ranks, error):
                self._fleet.uploaded(node, message)
                if self._adoption is not None and self._adoption.uploaded(generation, index, error):
                    pass
                elif error:
                    # Else it was given up meanwhile, with a node that had another part of it.
                    if any((p.generation, p.index) == (generation, index) for p in self._state.unsaved):
                        self._queue.append(ev.UploadFailed(generation, index, error))
                else:
                    self._queue.extend(ev.ShardUploaded(generation, rank, index) for rank in ranks)
                    self._inbox.put(lambda: self._verification.go_on(self._state))
            case wire.Fetched():
                self._queue.extend(filter(None, [self._verification.fetched(node, message)]))

    def _hear_task(self, message: wire.TaskDone) -> None:
        if not self._fleet.task_done(message.task):
            return
        metrics: Any = None
        error = message.error
        if not error:
            metrics = cloudpickle.loads(message.body)
            if not isinstance(metrics, dict):
                error = f"the validation function returned {type(metrics).__name__}, not a dict of metrics"
        if error:
            status = ValidationStatus.TIMEOUT if message.timed_out else ValidationStatus.FAILED
            self._warn(f"validation of {message.task} {'timed out' if message.timed_out else f'failed: {error}'}")
            self._queue.append(ev.Validated(message.task, status))
            return
        self._past.validated[message.task] = metrics
        score = score_of(metrics, self._plan.score_attribute)
        self._queue.append(ev.Validated(message.task, ValidationStatus.DONE, score, metrics))

    def _worker_failed(self, generation: int, rank: int, evidence: Evidence) -> None:
        node = self._fleet.node_of(generation, rank)
        ranks = self._state.ranks if generation == self._state.generation else ()
        at = self._state.base + ranks[rank].reports if rank < len(ranks) else -1
        self._queue.append(ev.WorkerFailed(generation, rank, evidence, node, at))

    def _node_lost(self, node: str) -> None:
        """Its processes are gone with it."""
        self._work_off()  # what it said before counts
        announced = self._fleet.roster.is_draining(node)
        ranks, left_with = self._fleet.lost(node)
        generation = self._fleet.generation
        if ranks and self._state.group_lives:
            self._worker_failed(generation, ranks[0], Evidence(node_lost=True, preempted=announced, message=node))
        if ranks and self._fleet.is_gone(node, generation):
            self._queue.append(ev.GroupGone(generation))
        for pending in self._state.unsaved:
            if (pending.generation, pending.index) in left_with and not pending.is_uploaded:
                self._queue.append(ev.StagedLost(pending.id, f"{node} was lost before it was in storage"))

    def _hear_stacks(self, message: wire.Stacks) -> None:
        if self._stacks.add(message, self._state):
            path = self._storage.home.stacks_file(message.generation)
            self._stacks.write(path)
            self._warn("\n  ".join([f"what the ranks are doing (in full: {path}):", *self._stacks.summary()]))
            self._queue.append(ev.StacksTaken(message.generation, self._stacks.culprit()))

    def _hear_probe(self, node: str, ok: bool, findings: list[str]) -> None:
        if not ok:
            self._warn(f"{node} is not fit to train on, and is not used: {'; '.join(findings)}")
            self._fleet.roster.is_unfit(node)
            self._place_anew()

    def _hear_of_peers(self, node: str, message: wire.DoorOpen | wire.Met) -> None:
        finding = self._fleet.peers.hear(node, message)
        if finding is not None:
            self._warn(finding)
            self._place_anew()

    def _place_anew(self) -> None:
        """Some nodes are not to be used any more. A group on them goes on if it has begun, or if the others are
        not enough; else its ranks may wait for each other for long, and have nothing to lose."""
        self._queue.append(ev.Capacity(self._fleet.slots()))
        self._work_off()  # what was reported before counts
        state = self._state
        has_begun, has_room = any(rank.reports for rank in state.ranks), state.world_size is not None
        if state.group_lives and has_room and not has_begun and not self._fleet.is_well_placed(state.generation):
            self._queue.append(ev.HandedOver(state.generation, HandoverReason.RESIZE))

    # What the core says

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.StartGroup():
                self._start_group(command)
            case do.AskHandover():
                self._handing_over.ask(command)
            case do.DumpStacks(generation):
                self._stacks = Stacks()
                self._fleet.tell(wire.DumpStacks(generation))
            case do.Rest(node, on):
                self._fleet.roster.rest(node, on)
                if self._begun and self._fleet.grows:
                    self._queue.append(ev.Capacity(self._fleet.slots()))
            case do.StopGroup(generation, graceful):
                if self._fleet.stop(generation, graceful):
                    self._queue.append(ev.GroupGone(generation))
            case do.Commit():
                self._commit(command)
            case do.Gather():
                self._gather(command)
            case do.Stall(on):
                self._fleet.stall(on)
            case do.Upload(generation, index, id, ranks):
                manifest = self._fleet.manifest_of(id)
                if manifest is not None:  # else it could not be gathered, and the machine hears of it
                    self._fleet.upload(manifest, ranks)
            case do.Discard(generation, index):
                self._fleet.discard(generation, index)
                if isinstance(self._storage, DiskStorage):
                    self._storage.discard(generation, index, self._plan.spec.num_workers)
            case do.Delete(id):
                self._storage.delete(id)
            case do.Verify(id):
                self._verification.begin(id, self._state)
            case do.Quarantine(id, why):
                self._storage.quarantine(id, why)
            case do.Validate(id):
                self._validate(id)
            case do.SetTimer(name, after_s):
                self._timers[name] = time.monotonic() + after_s
                if name == "backoff":
                    self._display.state("waiting", f"{after_s:.1f} s before the next attempt")
            case do.CancelTimer(name):
                self._timers.pop(name, None)
            case do.Warn(text):
                self._warn(text)
            case do.Finish():
                self._finish = command

    def _size(self, generation: int, index: int) -> int:
        return self._fleet.size(generation, index)

    def _start_group(self, command: do.StartGroup) -> None:
        self._accounts.begin(command.generation)
        self._book.begin(command.generation, command.world_size)
        self._returned.clear()
        self._display.group(command.generation, command.world_size)
        self._handing_over.forget()
        if not self._fleet.start(command):
            # A node has gone since this was decided: it is decided again.
            self._queue.append(ev.Capacity(self._fleet.slots()))
            self._queue.append(ev.HandedOver(command.generation, HandoverReason.RESIZE))

    def _gather(self, command: do.Gather) -> None:
        manifest = self._manifest(command)
        try:
            self._fleet.gather(command, manifest)
        except StorageError as error:  # the ranks' files do not go together
            self._queue.append(ev.CommitFailed(command.generation, command.index, str(error)))

    def _commit(self, command: do.Commit) -> None:
        if isinstance(self._storage, RemoteStorage):
            self._storage.commit(self._fleet.gathered(command.generation, command.index))
            return
        self._book.sync()  # the history up to a checkpoint is as durable as the checkpoint
        self._storage.commit(self._manifest(command), self._fleet.shards(command))

    def _manifest(self, command: do.Commit | do.Gather) -> Manifest:
        """As far as it is known before the files are put together."""
        metrics = self._book.metrics_of(command.index)
        arguments = self._arguments.pop((command.generation, command.index), None)
        return self._storage.new_manifest(command, metrics, arguments)

    def _validate(self, id: str) -> None:
        if self._plan.validation is None:
            self._queue.append(ev.Validated(id, ValidationStatus.NONE))
            return
        arguments = self._past.validations.get(id) or {}
        payload, timeout_s = self._plan.validation(id, arguments)
        self._fleet.run_task(id, payload, timeout_s)

    def _warn(self, text: str) -> None:
        self._display.warning(text)
        self._observer.warned(text)

    def _list_checkpoints(self) -> list[dict[str, Any]]:
        listed = []
        for checkpoint in sorted(self._state.checkpoints, key=lambda c: c.report):
            try:
                manifest = self._storage.read_manifest(checkpoint.id)
            except CheckpointDamagedError as error:
                self._inbox.put(ev.Damaged(checkpoint.id, str(error)))
                continue
            metrics = {**manifest.metrics, **(self._past.validated.get(checkpoint.id) or {})}
            listed.append({"id": checkpoint.id, "metrics": metrics, "status": checkpoint.validation.value})
        return listed

    # The end

    def ending(self) -> Ending:
        finish = self._finish
        assert finish is not None
        if finish.outcome is Outcome.FAILED:
            error = self._accounts.error(self._state, self._plan.how_to_go_on, self._handing_over.notice)
            return Ending(finish.outcome, error)
        value = cloudpickle.loads(self._returned[0]) if 0 in self._returned else None
        return Ending(finish.outcome, None, value, self._signal)

    def _closing_words(self, ending: Ending) -> str:
        newest = self._state.newest
        saved = f"last checkpoint: {newest.id}" if newest else "no checkpoint was saved"
        if ending.outcome is Outcome.STOPPED:
            return f"{saved}. To go on, {self._plan.how_to_go_on}"
        if ending.error is not None:
            return str(ending.error).partition("\n")[0]
        return f"{saved}; results in {self._plan.location}"


def _storage(plan: Plan, inbox: Inbox, settings: Settings) -> DiskStorage | RemoteStorage:
    if plan.location.path is not None:
        return DiskStorage(RunLayout(plan.location.path), inbox, plan.score_attribute)
    scratch = scratch_of(str(plan.location), settings.scratch_dir)
    return RemoteStorage(plan.location, scratch, inbox, plan.score_attribute, settings.storage_patience_s)


def _detail(state: RunState) -> str:
    """What a person wants to know beside the phase."""
    if state.phase is Phase.STARTING:
        return f"from {state.resume or 'the beginning'}"
    if state.phase is Phase.STOPPING and state.verdict is Verdict.STOP:
        return "gracefully; another Ctrl+C stops at once"
    return ""


def _journalled(event: ev.Event) -> tuple[str, dict[str, Any]]:
    return type(event).__name__, msgspec.to_builtins(event)
