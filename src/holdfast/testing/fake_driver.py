"""The driver's loop without threads or files: journal, step, carry out; and recovery by replay.

It can die wherever the real one can: before and after each journal record, between two commands, between a manifest
and its record, and in the middle of recovery. Only the journal and the store outlive it, and what the nodes keep.
Where storage is far away it goes on hearing while the journal is written, and acts on nothing before that.
"""

from __future__ import annotations

import functools
from random import Random

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step
from holdfast.core.run.salvage import RankLog, committable, valid_until
from holdfast.core.run.state import Durable, Outcome, Phase, RankStatus, RunState

from .clock import Clock
from .fake_cluster import FakeCluster
from .fake_engine import FakeEngine, News
from .fake_group import Group, Status, Worker
from .fake_hands import FakeHands
from .fake_store import FakeStore, Manifest
from .fates import Violation
from .invariants import Judge
from .schedule import Faults, Schedule

REVIVED_AFTER_S = 1.0  # the next driver starts
_SAID_ONCE = ev.Committed | ev.CommitFailed | ev.UploadFailed  # by the driver's own storage
Turn = tuple[RunState, ev.Event, RunState, list[do.Command]]  # before, what happened, after, what to do


class DriverKilled(Exception):
    """The driver dies at this point."""


class FakeDriver:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        faults: Faults,
        schedule: Schedule,
        engine: FakeEngine,
        store: FakeStore,
        cluster: FakeCluster | None = None,
    ) -> None:
        self.journal: list[ev.Event] = []
        self.state = RunState()
        self.judge = Judge(engine, store)
        self.trace: list[str] | None = None
        self.steps = 0
        self.ended: Outcome | None = None
        self._inbox: list[ev.Event | News] = []
        self._heard: list[ev.Event] = []
        self._alive = False
        self._listens = False  # to what else has come in
        self._epoch = 0
        told = (engine, store, cluster, self.judge, self.deliver)
        self._hands = FakeHands(clock, rng, faults, schedule, *told)
        self._unwritten = 0  # batches that the journal does not have yet
        self._written_until = 0.0
        self._clock, self._rng, self._faults, self._schedule = clock, rng, faults, schedule
        self._engine, self._store, self._cluster = engine, store, cluster
        depot = engine.depot
        engine.deliver = depot.deliver = store.deliver = self.deliver
        engine.noticed, depot.keeps_staged = self._noticed, schedule.spec.remote
        if cluster is not None:
            cluster.tell, engine.disturb_nodes = self.deliver, cluster.disturb
            cluster.kill_driver = self._die_of
        engine.reported = self.judge.reported
        depot.put, depot.storage_is_away = store.put, store.is_away
        engine.hang_is_watched = lambda learnt: (
            self.state.spec.hang_timeout_s > 0 or (learnt and self.state.spec.learns_hangs)
        )
        engine.stop_is_watched = lambda: self.state.spec.stopped_grace_s > 0
        store.die_here = self.die_here
        store.refused = self.judge.commit_refused

    def start(self) -> None:
        """Replay, reconcile with the store, go."""
        self._alive, self.ended = True, None
        self._epoch += 1
        self.state = RunState(functools.reduce(step.replay, self.journal, Durable()))
        self.judge.recovered(self.state.durable)
        self._note(f"driver {self._epoch} has replayed {len(self.journal)} records")
        self._store.maybe_damage()
        spec = self._schedule.spec_of(self._epoch)
        found = self._reconcile()
        clear: tuple[str, ...] = ()
        if self._cluster is not None:
            self._cluster.driver_starts(spec.min_workers or spec.num_workers)
            found.append(ev.Capacity(self._cluster.slots()))
            clear = tuple(self._cluster.roster)
        self._work_off(
            [*found, ev.DriverStarted(self._epoch, spec, clear, waited_s=self._rng.random() * REVIVED_AFTER_S)]
        )

    def _reconcile(self) -> list[ev.Event]:
        """Make the journal's view agree with the manifests. What was given up or deleted for good stays so, whatever a
        crash left of it: another group may have gone another way since."""
        failed = {(e.generation, e.index) for e in self.journal if isinstance(e, ev.CommitFailed)}
        had = {(e.generation, e.record.report) for e in self.journal if isinstance(e, ev.Committed)}
        found_out: list[ev.Event] = []
        known = {c.id for c in self.state.checkpoints}
        for id, found in sorted(self._store.manifests.items(), key=_age):
            if id in known:
                continue
            self.die_here()
            unwanted = (found.generation, found.index) in failed or (found.generation, found.record.report) in had
            if id in self.state.durable.damaged:
                self._store.quarantine(id)
            elif unwanted or self._is_late(found):
                self._store.delete(id)
            else:
                found_out.append(ev.Committed(found.record, found.generation, index=-1))
        for id in sorted(known - self._store.manifests.keys()):
            found_out.append(ev.Damaged(id, "its manifest is gone"))
        group = self._engine.groups.get(self.state.generation)
        if group is None or (self._schedule.spec.remote and self._rng.random() < 0.4):  # it is on another machine
            return found_out
        return self._take_up(group, failed, found_out + self._adopt(failed))

    def _is_late(self, found: Manifest) -> bool:
        """Whether a driver that was relieved before the last one committed it; far away that may come to light late."""
        return self._schedule.spec.remote and found.epoch < self.state.durable.epoch

    def _adopt(self, failed: set[tuple[int, int]]) -> list[ev.Event]:
        """What the last group, and those that it was built on, had whole on their nodes when the driver died goes to
        storage first of all."""
        newest = self.state.newest.report if self.state.newest is not None else 0
        begun = (event for event in self.journal if isinstance(event, ev.GroupStarted))
        until: dict[int, float] = functools.reduce(valid_until, begun, {})
        groups = [self._engine.groups[generation] for generation in until if generation in self._engine.groups]
        taken: list[ev.Event] = []
        for what in [what for group in groups for _, what in sorted(group.gathered.items())]:
            given_up = (what.generation, what.index) in failed or what.id in self.state.durable.damaged
            ahead = newest < what.report <= until[what.generation] and what.id not in self._store.manifests
            if given_up or not ahead or not self._engine.groups[what.generation].has_staged(what.index):
                continue
            self.die_here()
            for rank in what.ranks:
                self._store.put(what.id, what.generation, rank)
            record = self._store.add_manifest(what, self.judge.adopts(what), self._epoch)
            self._faults.count("the next driver took over what was staged")
            taken.append(ev.Committed(record, what.generation, index=-1))
        return taken

    def _take_up(self, group: Group, failed: set[tuple[int, int]], found: list[ev.Event]) -> list[ev.Event]:
        """What its ranks had reported, and that driver had not heard of."""
        state = functools.reduce(step.replay, found, self.state.durable)
        logs = [self._log_of(group, worker) for worker in group.workers]
        taken: list[ev.Event] = []
        for command in committable(state, logs, failed, self._store.manifests):
            self.die_here()
            for rank in command.ranks:
                self._store.put(command.id, command.generation, rank)
            record = self._store.add_manifest(command, self.judge.takes_up(command), self._epoch)
            self._faults.count("the next driver took up what the last one had not heard")
            taken.append(ev.Committed(record, command.generation, index=-1))
        self.judge.took_up(group, failed, functools.reduce(step.replay, taken, state))
        return found + taken

    def _log_of(self, group: Group, worker: Worker) -> RankLog:
        """What a rank left on its machine, if that can be reached."""
        if self._schedule.spec.remote and not group.is_reachable(worker, self._clock.now):
            return RankLog(0, {})
        numbers = {index: group.base + index + 1 for index in range(worker.reports)}
        workload = self._schedule.workload
        staged = {i: workload.name(n) for i, n in numbers.items() if workload.has_files(worker.rank, n)}
        lost = frozenset(index for index in staged if not self._store.has_shard(group, index))
        return RankLog(worker.reports, staged, worker.status is Status.RETURNED, lost)

    def die(self) -> None:
        """Everything that the driver started ends with it, as far as it hears of that."""
        self._alive = False
        self._inbox.clear()
        self._heard.clear()
        self._hands.driver_died()
        self._listens = False
        self._unwritten, self._written_until = 0, 0.0
        self._clock.forget_all()
        self._engine.driver_died()
        self._store.driver_died()

    def die_here(self) -> None:
        if self._faults.hit("driver killed"):
            self._die_of("driver killed")

    def _die_of(self, kind: str) -> None:
        if self._alive:
            self._faults.count(kind)
            self._note("the driver is killed")
            raise DriverKilled

    def deliver(self, event: ev.Event | News) -> None:
        """Put it into the inbox; a busy driver takes in several events at once, and journals them together."""
        if not self._alive:
            return
        self._inbox.append(event)
        if len(self._inbox) == 1:
            busy = self._rng.random()
            self._clock.after(busy if busy < 0.3 else 0.0, self._take_in)

    def _take_in(self) -> None:
        batch, self._inbox = self._inbox, []
        heard: list[ev.Event] = []
        self._listens = True
        for item in batch:
            if isinstance(item, ev.Event):
                heard.append(item)
            else:  # what it means depends on all that was said before
                self._hear(heard)
                heard = item(self.state) if self._alive else []
        self._listens = False
        self._hear(heard)

    def _hear(self, events: list[ev.Event]) -> None:
        self._work_off(events)
        for event in events:
            if isinstance(event, ev.ShardStaged):
                self._engine.depot.seal(event)
            elif isinstance(event, ev.WorkerReturned):
                self._set_the_point()
            if self._alive:
                self._disturb(event)

    def _noticed(self, generation: int, rank: int, reports: int) -> News:
        """A worker knows that its group is about to end, and says how far it is."""

        def hear(state: RunState) -> list[ev.Event]:
            if self._hands.notices is not None and generation == state.generation:
                self._hands.notices[rank] = reports
                self._set_the_point()
            return []

        return hear

    def _set_the_point(self) -> None:
        """When all ranks know: at the first report that none of them has made."""
        ranks = enumerate(self.state.ranks)
        running = {rank for rank, known in ranks if known.status is not RankStatus.RETURNED}
        notices = self._hands.notices
        if notices and running <= notices.keys():
            index = max(notices.values()) + 1
            self._hands.notices = None
            self._engine.hand_over_at(self.state.generation, index)
            self.deliver(ev.HandoverSet(self.state.generation, index, self._hands.notice))

    def _disturb(self, event: ev.Event) -> None:
        if not isinstance(event, _SAID_ONCE) and hasattr(event, "generation"):
            self._heard.append(event)
        if self._faults.hit("message of an old group"):
            self._clock.after(self._rng.random() * 20.0, self._hear_again)
        for kind in ("stop asked", "stop asked between groups"):
            if (kind == "stop asked" or not self.state.group_lives) and self._faults.hit(kind):
                self._faults.count(kind)
                self.deliver(ev.StopAsked())
                if self._rng.random() < 0.4:
                    self._clock.after(self._rng.random() * 5.0, self.deliver, ev.StopAsked(at_once=True))
        if self.state.group_lives and self._faults.hit("stop asked with grace"):
            self._faults.count("stop asked with grace")
            self.deliver(ev.StopAsked(grace_s=self._rng.choice((3.0, 15.0))))
        if self._faults.hit("stop asked at once"):
            self._faults.count("stop asked at once")
            self.deliver(ev.StopAsked(at_once=True))
        for kind, way in (("clock jumps", 1.0), ("clock stands still", -0.1)):
            if self._faults.hit(kind):
                self._faults.count(kind)
                self._hands.timers.jump(way * self._rng.uniform(30.0, 300.0))

    def _hear_again(self) -> None:
        old = [event for event in self._heard if getattr(event, "generation", 0) < self.state.generation]
        if self._alive and old:
            self._faults.count("message of an old group")
            self._work_off([self._rng.choice(old)])

    def _work_off(self, batch: list[ev.Event]) -> None:
        """Step is pure, so the whole batch is decided first, then journalled in that order, and then carried out."""
        turns: list[Turn] = []
        for event in batch:
            self._step(event, turns)
        self._look_at_the_lag(turns)
        far_away = self._schedule.spec.remote and any(event.durable for _, event, _, _ in turns)
        if not far_away and not self._unwritten:
            self._act(turns)
            return
        self._unwritten += 1
        slow = 5.0 if self._rng.random() < 0.1 else 0.1
        self._written_until = max(self._written_until, self._clock.now) + self._rng.random() * slow
        self._clock.at(self._written_until, self._written, turns)

    def _look_at_the_lag(self, turns: list[Turn]) -> None:
        """Workers wait when too much waits for storage, and go on when half of that is there."""
        state, limit = self.state, self._schedule.most_waiting
        if not state.spec.remote:
            return
        whole = sum(state.is_whole(pending) for pending in state.unsaved)
        stalled = whole > (limit // 2 if state.stalled else limit)
        if stalled != state.stalled and state.phase is not Phase.ENDED:
            self._step(ev.StorageLags(stalled, whole, 0, 0.0), turns)

    def _written(self, turns: list[Turn]) -> None:
        self._unwritten -= 1
        self._act(turns)

    def _act(self, turns: list[Turn]) -> None:
        for before, event, after, commands in turns:
            if event.durable:
                self._append(event)
            self.judge.stepped(before, event, after, commands)
        for before, event, after, commands in turns:
            self._release(before, event, after)
            for command in commands:
                self.die_here()
                if isinstance(command, do.Finish):
                    self._finish(command)
                else:
                    self._hands.carry_out(command, self.state, self._epoch)
                if not self._alive:
                    return
        if not self._unwritten and not self._listens:
            said = {event.timer for event in self._inbox if isinstance(event, ev.TimerFired)}
            self.judge.rests(self.state, self._hands.timers.pending | self._hands.steady.pending | said)

    def _release(self, before: RunState, event: ev.Event, after: RunState) -> None:
        """Tell the nodes what is durable, or will never be."""
        if isinstance(event, ev.Committed) and event.index >= 0 and self._rng.random() < 0.5:
            self._engine.depot.free(event.generation, event.index)
        if before.pending is after.pending and before.carried is after.carried:
            return
        left = {(p.generation, p.index) for p in after.unsaved}
        for pending in before.unsaved:
            if (pending.generation, pending.index) not in left and not isinstance(event, ev.DriverStarted):
                self._engine.settled(pending.generation, pending.index)

    def _step(self, event: ev.Event, turns: list[Turn]) -> None:
        before = self.state
        try:
            self.state, commands, reason = step.step(before, event, self._hands.timers.tell())
        except Exception as error:
            raise Violation("the machine never raises", f"{type(error).__name__}: {error} on {event}") from error
        self.steps += 1
        if self.trace is not None:
            self._note(f"{event}\n      {before.phase.value} -> {self.state.phase.value}: {reason}")
            self.trace.extend(f"      do {command}" for command in commands)
        turns.append((before, event, self.state, commands))
        for command in commands:
            if isinstance(command, do.Decide):
                self._step(self._located(command.event), turns)

    def _located(self, event: ev.Event) -> ev.Event:
        """The machine knows ranks alone."""
        if isinstance(event, ev.GroupStarted) and self._cluster is not None:
            homes = self._cluster.place(event.world_size) or ()
            return structs.replace(event, leased=tuple(sorted({node.id for node in homes})))
        if not isinstance(event, ev.WorkerFailed):
            return event
        return structs.replace(event, node=self._engine.node_of(event.generation, event.rank))

    def _append(self, event: ev.Event) -> None:
        self.die_here()
        if self._faults.hit("torn journal tail"):
            self._faults.count("torn journal tail")
            self._note(f"the driver is killed while it writes {event}")
            raise DriverKilled
        self.journal.append(event)
        self.judge.journalled(event)
        self.die_here()

    def _finish(self, command: do.Finish) -> None:
        self._note(f"the run {command.outcome.value}")
        self.ended = command.outcome
        self._engine.all_end()  # which a driver waits for
        self.die()

    def _note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._clock.now:8.3f}  {text}")


def _age(item: tuple[str, Manifest]) -> tuple[int, int]:
    return item[1].record.report, item[1].generation
