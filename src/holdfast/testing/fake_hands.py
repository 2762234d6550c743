"""The hands of the fake driver: each command of the machine is carried out by the fakes, or judged, or both."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import HandoverReason, RunState

from .clock import Clock, Timers
from .fake_cluster import FakeCluster
from .fake_engine import FakeEngine
from .fake_store import FakeStore
from .invariants import Judge
from .schedule import Faults, Schedule


class FakeHands:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        faults: Faults,
        schedule: Schedule,
        engine: FakeEngine,
        store: FakeStore,
        cluster: FakeCluster | None,
        judge: Judge,
        deliver: Callable[[ev.Event], None],
    ) -> None:
        self.timers = Timers(clock, lambda timer: deliver(ev.TimerFired(timer)))
        self.steady = Timers(clock, lambda timer: deliver(ev.TimerFired(timer)))  # no jump makes others' time pass
        self.notices: dict[int, int] | None = None  # reports made, by rank, of those that know of a hand-over
        self.notice = 0
        self._clock, self._rng, self._faults, self._schedule = clock, rng, faults, schedule
        self._engine, self._store, self._cluster = engine, store, cluster
        self._judge, self._deliver = judge, deliver
        self._state, self._epoch = RunState(), 0

    def carry_out(self, command: do.Command, state: RunState, epoch: int) -> None:
        """All but ``Finish``."""
        self._state, self._epoch = state, epoch
        _CARRY_OUT[type(command)](self, command)

    def driver_died(self) -> None:
        self.timers.clear()
        self.steady.clear()
        self.notices = None

    def _start_group(self, command: do.StartGroup) -> None:
        self._judge.starts_group(command)
        self.notices = None
        homes = None if self._cluster is None else self._cluster.place(command.world_size, command.leased)
        if self._cluster is not None and homes is None:
            # A node has gone since this was decided: it is decided again.
            self._faults.count("no room was left when a group was to start")
            self._deliver(ev.Capacity(self._cluster.slots()))
            self._deliver(ev.HandedOver(command.generation, HandoverReason.RESIZE))
            return
        if any(p.id == command.resume for p in self._state.carried):
            self._faults.count("a group resumed from what was staged")
        self._engine.start(command, homes)

    def _ask_handover(self, command: do.AskHandover) -> None:
        self.notices, self.notice = {}, command.number
        self._engine.notice(command)

    def _rest(self, command: do.Rest) -> None:
        if self._cluster is not None:
            self._cluster.rest(command.node, command.on)

    def _gather(self, command: do.Gather) -> None:
        self._judge.gathers(command)
        self._engine.depot.gather(command)

    def _stall(self, command: do.Stall) -> None:
        if command.on:
            self._faults.count("workers waited for storage")
        self._engine.stalled = command.on

    def _commit(self, command: do.Commit) -> None:
        commit = self._store.commit_far_away if self._schedule.spec.remote else self._store.commit
        self._store.ask(commit, command, self._judge.commits(command), self._epoch)

    def _discard(self, command: do.Discard) -> None:
        self._judge.fates.remove(command)
        self._engine.depot.discard(command)

    def _delete(self, command: do.Delete) -> None:
        if self._schedule.spec.remote:
            self._clock.after(self._rng.random() * 8.0, self._store.delete, command.id)
        else:
            self._store.ask(self._store.delete, command.id)

    def _verify(self, command: do.Verify) -> None:
        staged = next((p for p in self._state.unsaved if p.id == command.id), None)
        if staged is not None:
            self._engine.depot.verify(command.id, staged.generation, staged.index)
        else:
            self._store.ask(self._store.verify, command.id)

    def _quarantine(self, command: do.Quarantine) -> None:
        self._store.ask(self._store.quarantine, command.id)

    def _validate(self, command: do.Validate) -> None:
        self._judge.validates(command.id)
        self._store.validate(command.id)

    def _set_timer(self, command: do.SetTimer) -> None:
        if command.timer == timers.DOUBT:
            self._faults.count("a driver waited for the end of what it could not reach")
        (self.steady if command.timer == timers.DOUBT else self.timers).set(command.timer, command.after_s)

    def _cancel_timer(self, command: do.CancelTimer) -> None:
        cancelled = self.timers.cancel(command.timer) or self.steady.cancel(command.timer)
        if cancelled and self._faults.hit("timer fired while it was cancelled"):
            self._faults.count("timer fired while it was cancelled")
            self._clock.after(0.0, self._deliver, ev.TimerFired(command.timer))


_CARRY_OUT: dict[type[do.Command], Callable[[FakeHands, Any], None]] = {
    do.Decide: lambda _hands, _command: None,  # stepped at once, with its batch
    do.StartGroup: FakeHands._start_group,
    do.StopGroup: lambda hands, command: hands._engine.stop(command),
    do.AskHandover: FakeHands._ask_handover,
    do.Rest: FakeHands._rest,
    do.DumpStacks: lambda hands, command: hands._engine.dump_stacks(command),
    do.Gather: FakeHands._gather,
    do.Stall: FakeHands._stall,
    do.Upload: lambda hands, command: hands._engine.depot.upload(command),
    do.Commit: FakeHands._commit,
    do.Discard: FakeHands._discard,
    do.Delete: FakeHands._delete,
    do.Verify: FakeHands._verify,
    do.Quarantine: FakeHands._quarantine,
    do.Validate: FakeHands._validate,
    do.SetTimer: FakeHands._set_timer,
    do.CancelTimer: FakeHands._cancel_timer,
    do.Warn: lambda _hands, _command: None,
}
