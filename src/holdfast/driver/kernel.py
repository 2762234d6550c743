"""The driver without its contacts to the world: ``handle(inputs, now) -> effects``. It has no thread, socket, clock or
file. What must survive the driver is journalled before it is acted on: the effects of a step are returned only when all
journal entries up to that step are known to be written. Starting and recovering are the same: replay, then continue.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from holdfast.core.budgets import action_taken
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import regrouping
from holdfast.core.run import step as core
from holdfast.core.run.state import RunState
from holdfast.core.run.timers import Timer
from holdfast.runs.past import Past
from holdfast.wire.worker_messages import GoOn

from . import effects as fx
from .driver_state import DriverState
from .inbound import Inbound
from .outbound import Outbound
from .plan import Plan
from .site import Site
from .startup import Startup

log = logging.getLogger(__name__)
_HEARTBEAT_S = 10.0  # handle() is called at least this often while a timer waits
_LATE_S = 1.0  # a loop that is only busy calls handle() within this time after it is due
_DONE_BY_WORKERS = {
    *(ev.WorkerReady, ev.Progressed, ev.ShardStaged, ev.ShardSealed, ev.ShardUploaded, ev.WorkerReturned),
}


class StepTaken(NamedTuple):
    """One step of the core."""

    event: ev.Event
    before: RunState
    after: RunState
    commands: list[do.Command]


class Kernel:
    """``audit``, if given, sees every step just before it is acted on: the simulator checks its invariants there."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        past: Past,
        epoch: int,
        found: Iterable[ev.Event] = (),
        audit: Callable[[StepTaken], None] | None = None,
    ) -> None:
        """``found``: the events that make the journal's view agree with storage."""
        self.known = DriverState(plan, site, past, epoch)
        self.known.queue.extend(found)
        self._audit, self._is_logged = audit, log.isEnabledFor(logging.DEBUG)
        self._startup = Startup(self.known, self._work_off)
        self._inbound = Inbound(self.known, self._startup, self._work_off)
        self._outbound = Outbound(self.known, self._startup)
        self._asked = self._journalled = 0  # numbers of journal entries: requested, and known to be written
        self._waiting: deque[tuple[int, list[StepTaken]]] = deque()  # steps, and what must be journalled before them
        self._measured = (0, 0)  # how much was staged when the free space was measured
        self._suspended_s = 0.0  # how long the process was suspended; timers and hangs ignore that time

    @property
    def state(self) -> RunState:
        return self.known.run

    @property
    def finish(self) -> do.Finish | None:
        """The last command of the core, when the run has ended."""
        return self._outbound.finish

    @property
    def has_begun(self) -> bool:
        """Whether the start is over: nodes have joined, and the core has taken over."""
        return self._startup.is_over

    @property
    def left_on_nodes(self) -> bool:
        """Whether nodes still have files of an earlier driver, which the next one may need."""
        return self._startup.left_on_nodes

    @property
    def waiting(self) -> list[StepTaken]:
        """Steps that wait for the journal before they are acted on."""
        return [turn for _, turns in self._waiting for turn in turns]

    @property
    def is_written(self) -> bool:
        """Whether all journal entries have been written."""
        return self._asked == self._journalled

    def due(self) -> float:
        """When ``handle`` is to be called even without inputs, by the monotonic clock; endless for never."""
        return self._due() + self._suspended_s

    def _due(self) -> float:
        timers = self.known.timers
        return min(*timers.values(), self.known.now.monotonic + _HEARTBEAT_S) if timers else math.inf

    def handle(self, inputs: Iterable[fx.Input], now: fx.Now) -> list[fx.Effect]:
        known = self.known
        known.now, known.effects = self._awake(now), []
        for item in inputs:
            if type(item) is tuple:
                self._inbound.hear(*item)
            elif isinstance(item, ev.Event):
                self._take_event(item)
            else:
                _TAKE[type(item)](self, item)
        self._fire_timers()
        self._work_off()
        return known.effects

    def _awake(self, now: fx.Now) -> fx.Now:
        """The time, without periods in which the process was suspended: it could not receive progress then, so no rank
        counts as hung because of them."""
        monotonic = now.monotonic - self._suspended_s
        late = monotonic - max(self._due(), self.known.now.monotonic)
        if late <= _LATE_S and not self._suspended_s:
            return now
        if late > _LATE_S:
            log.info("The driver did not run for %.0f s; timers continue where they were.", late)
            self._suspended_s += late
            monotonic -= late
        return fx.Now(monotonic, now.wall)

    def let_go_on(self, report: int, save: bool) -> list[fx.Effect]:
        """In lockstep: the workers may continue after this report of the run. ``save``: the next one is to be saved."""
        known = self.known
        known.effects = []
        index = report - known.run.base - 1
        for rank in range(len(known.run.ranks)):
            known.outbox.tell(GoOn(known.run.attempt_number, rank, index, save))
        return known.effects

    def _take_event(self, event: ev.Event) -> None:
        if isinstance(event, ev.StopAsked) and not self._startup.is_over:
            self._startup.cut_short(event)
        else:
            self.known.queue.append(event)

    def _take_journalled(self, answer: fx.Journalled) -> None:
        assert self._journalled < answer.number <= self._asked, f"{answer} after {self._journalled} of {self._asked}"
        self._journalled = answer.number
        while self._waiting and self._waiting[0][0] <= self._journalled:
            self._act(*self._waiting.popleft())

    def _take_measured(self, answer: fx.DiskMeasured) -> None:
        self.known.lag.free = answer.free

    def _fire_timers(self) -> None:
        timers, now = self.known.timers, self.known.now.monotonic
        if not timers or min(timers.values()) > now:
            return
        for timer in [timer for timer, due in timers.items() if due <= now]:
            del timers[timer]
            if isinstance(timer, Timer):
                self.known.queue.append(ev.TimerFired(timer))
            else:
                self._startup.time_is_up()

    # The machine

    def _work_off(self) -> None:
        """Step the inputs, journal them together, and act on them only then."""
        known = self.known
        while True:
            turns: list[StepTaken] = []
            while known.queue:
                self._step(_next(known.queue, known.run), turns)
            if turns:
                self._journal(turns)
            if self._inbound.has_uploaded:
                self._inbound.has_uploaded = False
                known.verification.resume(known.run)
            for news in (known.lag.look(known.run, known.now.monotonic), known.handover.settle(known.run)):
                if news is not None:
                    known.queue.append(news)
            if not known.queue:
                break
        self._measure_disk()
        known.requests.settle(known.run, self.is_written)

    def _measure_disk(self) -> None:
        lag = self.known.lag
        staged = lag.behind.checkpoints, lag.behind.bytes
        if lag.wants_free_space and staged != self._measured:
            self._measured = staged
            self.known.effects.append(fx.MeasureDisk())

    def _step(self, event: ev.Event, turns: list[StepTaken]) -> None:
        """Step one event and the decisions that follow from it. Nothing else may come in between."""
        known = self.known
        before = known.run
        if type(event) is ev.WorkerFailed:
            event = regrouping.judged(before, event)
        known.run, commands, reason = core.step(before, event, known.now.monotonic)
        if self._is_logged:
            log.debug("%s: %s", type(event).__name__, reason)
        turns.append(StepTaken(event, before, known.run, commands))
        for one in event.events if type(event) is ev.Several else (event,):
            if type(one) is ev.WorkerReturned:
                known.note_returned(one)
        for command in commands:
            if type(command) is do.Decide:
                self._step(self._located(command.event), turns)

    def _located(self, event: ev.Event) -> ev.Event:
        """The core knows only ranks. This adds the nodes of an attempt that it starts, or of a failure."""
        if isinstance(event, ev.AttemptStarted):
            leased, redone = tuple(self.known.nodes.leased(event.world_size)), self.known.snapshots.redone(event)
            return msgspec.structs.replace(event, leased=leased, redone=redone)
        if isinstance(event, ev.RankMoved):
            return msgspec.structs.replace(event, leased=tuple(self.known.nodes.places_of([event.node])))
        if not isinstance(event, ev.WorkerFailed):
            return event
        return msgspec.structs.replace(event, node=self.known.attempts.node_of(event.attempt_number, event.rank))

    def _journal(self, turns: list[StepTaken]) -> None:
        entries = [ev.journalled(turn.event) for turn in turns if turn.event.durable]
        if entries:
            self._asked += 1
            self.known.effects.append(fx.Journal(self._asked, entries))
        if self.is_written:
            self._act(self._asked, turns)
        else:
            self._waiting.append((self._asked, turns))

    def _act(self, number: int, turns: list[StepTaken]) -> None:
        assert number <= self._journalled, "a step is acted on before it is journalled"
        carry_out = self._outbound.carry_out
        for turn in turns:
            if self._audit is not None:
                self._audit(turn)
            if isinstance(turn.event, ev.Committed):
                self._note_durable(turn.event)
            self._show(turn)
            for command in turn.commands:
                carry_out(command)
        self.known.book.call_back(self._first_on_their_way(turns[-1].after))

    def _show(self, turn: StepTaken) -> None:
        known, failure = self.known, turn.after.failure
        action, failures = "", None
        if failure is not None and failure is not turn.before.failure:
            action = action_taken(turn.after.durable)
            failures = None if failure.instead else known.accounts.exceptions()
        known.effects.append(fx.Stepped(turn.event, turn.before, turn.after, known.lag.behind, action, failures))

    def _first_on_their_way(self, acted_on: RunState) -> dict[int, int]:
        """For each attempt, the first report whose checkpoint is pending. The state that is acted on may be older than
        the current one: remote storage writes the journal in the background, and reports may wait to be stepped."""
        known = self.known
        if not (known.queue or acted_on.has_unsaved or known.run.has_unsaved):
            return {}
        queued = [(e.attempt_number, e.index) for e in known.queue if isinstance(e, ev.ShardStaged)]
        unsaved = [(p.attempt_number, p.index) for p in (*acted_on.unsaved, *known.run.unsaved)]
        return dict(sorted({*queued, *unsaved}, reverse=True))

    def _note_durable(self, event: ev.Committed) -> None:
        known = self.known
        if event.validation is not None:
            known.past.validations[event.record.id] = event.validation
        if event.index < 0:
            return
        known.shards.note_durable(event.attempt_number, event.index, event.record.id)
        known.book.committed(event.attempt_number, event.index, event.record.id)


_TAKE: dict[type, Callable[[Kernel, Any], None]] = {
    fx.Begin: lambda kernel, _: kernel._startup.begin(),
    fx.NodesAnnounced: lambda kernel, _: kernel._startup.nodes_announced(),
    fx.Journalled: Kernel._take_journalled,
    fx.LogsRead: lambda kernel, answer: kernel._inbound.take_logs(answer.attempt_number, answer.logs),
    fx.DiskMeasured: Kernel._take_measured,
    fx.ManifestFound: lambda kernel, answer: kernel.known.verification.take_manifest(answer.id, answer.line),
    fx.AdoptedHere: lambda kernel, answer: kernel._startup.take_adopted(answer),
    fx.Lacking: lambda kernel, answer: kernel._startup.take_adopted(answer),
    fx.Answered: lambda kernel, answer: kernel.known.requests.answer(*answer),
}


def _next(queue: deque[ev.Event], run: RunState) -> ev.Event:
    """Combines consecutive events of workers into one step: a large attempt has very many. While ranks are being
    replaced, each return is a step of its own, because it ends the replacement."""
    event = queue.popleft()
    is_regrouping = run.attempt is not None and run.attempt.regroup is not None
    together = _DONE_BY_WORKERS - {ev.WorkerReturned} if is_regrouping else _DONE_BY_WORKERS
    if not queue or type(event) not in together:
        return event
    several: list[Any] = [event]
    while queue and type(queue[0]) in together:
        several.append(queue.popleft())
    return ev.Several(tuple(several)) if len(several) > 1 else event
