"""The driver's loop without threads or files: journal, step, carry out; and recovery by replay.

It can die wherever the real one can: before and after each journal record, between two commands, between a manifest
and its record, and in the middle of recovery. Only the journal and the store outlive it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from holdfast.core import commands as do
from holdfast.core import events as ev
from holdfast.core import run
from holdfast.core.state import Outcome, RunState

from .clock import Clock
from .fake_engine import FakeEngine
from .fake_store import FakeStore, Manifest
from .invariants import Judge, Violation
from .schedule import Faults, Schedule

Turn = tuple[RunState, ev.Event, RunState, list[do.Command]]  # before, what happened, after, what to do


class DriverKilled(Exception):
    """The driver dies at this point."""


class FakeDriver:
    def __init__(
        self, clock: Clock, rng: Random, faults: Faults, schedule: Schedule, engine: FakeEngine, store: FakeStore
    ) -> None:
        self.journal: list[ev.Event] = []
        self.state = RunState()
        self.judge = Judge(engine, store)
        self.trace: list[str] | None = None
        self.steps = 0
        self.ended: Outcome | None = None
        self._inbox: list[ev.Event] = []
        self._alive = False
        self._epoch = 0
        self._timers: dict[str, int] = {}
        self._timer_count = 0
        self._clock, self._rng, self._faults, self._schedule = clock, rng, faults, schedule
        self._engine, self._store = engine, store
        engine.deliver = store.deliver = self.deliver
        engine.reported = self.judge.reported
        engine.hang_is_watched = lambda: self.state.spec.hang_timeout_s > 0
        engine.stop_is_watched = lambda: self.state.spec.stopped_grace_s > 0
        store.die_here = self.die_here
        store.refused = self.judge.commit_refused

    def start(self) -> None:
        """Replay, reconcile with the store, go."""
        self._alive, self.ended = True, None
        self._epoch += 1
        self.state = RunState()
        for event in self.journal:
            self.state = run.replay(self.state, event)
        self.judge.recovered(self.state)
        self._note(f"driver {self._epoch} has replayed {len(self.journal)} records")
        self._store.maybe_damage()
        spec = self._schedule.spec_of(self._epoch)
        self._work_off([*self._reconcile(), ev.DriverStarted(self._epoch, spec)])

    def _reconcile(self) -> list[ev.Event]:
        """Make the journal's view agree with the manifests. What was given up for good stays given up: another group
        may have gone another way since."""
        failed = {(e.generation, e.index) for e in self.journal if isinstance(e, ev.CommitFailed)}
        found_out: list[ev.Event] = []
        known = {c.id for c in self.state.checkpoints}
        for id, found in sorted(self._store.manifests.items(), key=_age):
            if id in known:
                continue
            self.die_here()
            if (found.generation, found.index) in failed:
                self._store.delete(id)
            elif id in self.state.damaged:
                self._store.quarantine(id)
            else:
                found_out.append(ev.Committed(found.record, found.generation, index=-1))
        for id in sorted(known - self._store.manifests.keys()):
            found_out.append(ev.Damaged(id, "its manifest is gone"))
        return found_out

    def die(self) -> None:
        """Everything that the driver started ends with it."""
        self._alive = False
        self._inbox.clear()
        self._timers.clear()
        self._clock.forget_all()
        self._engine.driver_died()
        self._store.driver_died()

    def die_here(self) -> None:
        if self._faults.hit("driver killed"):
            self._faults.count("driver killed")
            self._note("the driver is killed")
            raise DriverKilled

    def deliver(self, event: ev.Event) -> None:
        """Put it into the inbox; a busy driver takes in several events at once, and journals them together."""
        if not self._alive:
            return
        self._inbox.append(event)
        if len(self._inbox) == 1:
            busy = self._rng.random()
            self._clock.after(busy if busy < 0.3 else 0.0, self._take_in)

    def _take_in(self) -> None:
        batch, self._inbox = self._inbox, []
        self._work_off(batch)
        for event in batch:
            if isinstance(event, ev.ShardStaged):
                self._engine.seal(event)
            if self._alive:
                self._disturb(event)

    def _disturb(self, event: ev.Event) -> None:
        if self._faults.hit("message of an old group"):
            self._clock.after(self._rng.random() * 20.0, self._deliver_if_old, event)
        for kind in ("stop asked", "stop asked between groups"):
            if (kind == "stop asked" or not self.state.group_lives) and self._faults.hit(kind):
                self._faults.count(kind)
                self.deliver(ev.StopAsked())
                if self._rng.random() < 0.4:
                    self._clock.after(self._rng.random() * 5.0, self.deliver, ev.StopAsked(at_once=True))
        if self._faults.hit("stop asked at once"):
            self._faults.count("stop asked at once")
            self.deliver(ev.StopAsked(at_once=True))

    def _deliver_if_old(self, event: ev.Event) -> None:
        generation = getattr(event, "generation", self.state.generation)
        if self._alive and generation < self.state.generation and not isinstance(event, ev.Committed | ev.CommitFailed):
            self._faults.count("message of an old group")
            self._work_off([event])

    def _work_off(self, batch: list[ev.Event]) -> None:
        """Step is pure, so the whole batch is decided first, then journalled in that order, and then carried out."""
        turns: list[Turn] = []
        for event in batch:
            self._step(event, turns)
        for before, event, after, commands in turns:
            if event.durable:
                self._append(event)
            self.judge.stepped(before, event, after, commands)
        for _, _, _, commands in turns:
            for command in commands:
                self.die_here()
                _CARRY_OUT[type(command)](self, command)
                if not self._alive:
                    return

    def _step(self, event: ev.Event, turns: list[Turn]) -> None:
        before = self.state
        try:
            self.state, commands, reason = run.step(before, event, self._clock.now)
        except Exception as error:
            raise Violation("the machine never raises", f"{type(error).__name__}: {error} on {event}") from error
        self.steps += 1
        if self.trace is not None:
            self._note(f"{event}\n      {before.phase.value} -> {self.state.phase.value}: {reason}")
            self.trace.extend(f"      do {command}" for command in commands)
        turns.append((before, event, self.state, commands))
        for command in commands:
            if isinstance(command, do.Decide):
                self._step(command.event, turns)

    def _append(self, event: ev.Event) -> None:
        self.die_here()
        if self._faults.hit("torn journal tail"):
            self._faults.count("torn journal tail")
            self._note(f"the driver is killed while it writes {event}")
            raise DriverKilled
        self.journal.append(event)
        self.judge.journalled(event)
        self.die_here()

    def _start_group(self, command: do.StartGroup) -> None:
        self.judge.starts_group(command, self.state.spec)
        self._engine.start(command)

    def _commit(self, command: do.Commit) -> None:
        self._store.ask(self._store.commit, command, self.judge.commits(command))

    def _discard(self, command: do.Discard) -> None:
        self.judge.discards(command)
        self._engine.discard(command)

    def _delete(self, command: do.Delete) -> None:
        self._store.ask(self._store.delete, command.id)

    def _verify(self, command: do.Verify) -> None:
        self._store.ask(self._store.verify, command.id)

    def _quarantine(self, command: do.Quarantine) -> None:
        self._store.ask(self._store.quarantine, command.id)

    def _validate(self, command: do.Validate) -> None:
        self.judge.validates(command.id)
        self._store.validate(command.id)

    def _set_timer(self, command: do.SetTimer) -> None:
        self._timer_count += 1
        self._timers[command.name] = self._timer_count
        # Never at once: in real time a timer that is due in no time is still later than now.
        self._clock.after(max(command.after_s, 0.001), self._fire, command.name, self._timer_count)

    def _cancel_timer(self, command: do.CancelTimer) -> None:
        if self._timers.pop(command.name, None) and self._faults.hit("timer fired while it was cancelled"):
            self._faults.count("timer fired while it was cancelled")
            self._clock.after(0.0, self.deliver, ev.TimerFired(command.name))

    def _fire(self, name: str, count: int) -> None:
        if self._timers.get(name) == count:
            del self._timers[name]
            self.deliver(ev.TimerFired(name))

    def _finish(self, command: do.Finish) -> None:
        self._note(f"the run {command.outcome.value}")
        self.ended = command.outcome
        self.die()

    def _note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._clock.now:8.3f}  {text}")


def _age(item: tuple[str, Manifest]) -> tuple[int, int]:
    return item[1].record.report, item[1].generation


_CARRY_OUT: dict[type[do.Command], Callable[[FakeDriver, Any], None]] = {
    do.Decide: lambda _driver, _command: None,  # stepped at once, with its batch
    do.StartGroup: FakeDriver._start_group,
    do.StopGroup: lambda driver, command: driver._engine.stop(command),
    do.Gather: lambda _driver, _command: None,
    do.Commit: FakeDriver._commit,
    do.Discard: FakeDriver._discard,
    do.Delete: FakeDriver._delete,
    do.Verify: FakeDriver._verify,
    do.Quarantine: FakeDriver._quarantine,
    do.Validate: FakeDriver._validate,
    do.SetTimer: FakeDriver._set_timer,
    do.CancelTimer: FakeDriver._cancel_timer,
    do.Warn: lambda _driver, _command: None,
    do.Finish: FakeDriver._finish,
}
