"""The runtime of a simulated driver. It passes inputs to the real kernel and carries out its effects in the simulation.

The driver can be killed wherever a real one can: before and after each journal record, between two effects, between a
manifest and its record, and during recovery. Only the journal, storage and the files on nodes survive it. If storage is
remote, the kernel receives inputs while the journal is written, and must not act on them before that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Outcome, RunState
from holdfast.core.run.timers import Timer
from holdfast.driver import effects as fx
from holdfast.driver.kernel import Kernel, StepTaken
from holdfast.errors import StorageError
from holdfast.runs.past import read_past
from holdfast.store.journal import Record
from holdfast.wire import messages as wire

from .clock import Clock, DriverClock
from .counted_commands import COUNTED, count
from .fates import Violation
from .invariants import Judge
from .schedule import Faults, Schedule
from .simulated_agents import Agents
from .simulated_cluster import Cluster
from .simulated_live import LiveWorkers
from .simulated_memory import SimulatedMemory
from .simulated_site import plan_of, site_of
from .simulated_storage import SimulatedStorage
from .simulated_workers import Workers
from .start_invariants import StartJudge

REVIVED_AFTER_S = 1.0  # the next driver starts
_SAID_ONCE = wire.NodeJoining | wire.NodeReady | wire.NodeLost | wire.NodeDraining | wire.WorkersGone | wire.Asked
_DISTURBANCES = (
    "message of an old attempt",
    "stop asked",
    "stop asked between attempts",
    "stop asked with grace",
    "stop asked at once",
    "clock jumps",
    "clock stands still",
    "wall clock jumps",
)


class DriverKilled(Exception):
    """The driver is killed at this point."""


class SimulatedRuntime:
    def __init__(self, clock: Clock, rng: Random, faults: Faults, schedule: Schedule) -> None:
        remote = schedule.spec.nodes_hold_files
        workload = schedule.workload
        memory, are_logged = SimulatedMemory(clock, faults, schedule), not (remote and schedule.nodes)
        self.workers = (LiveWorkers if schedule.is_live else Workers)(clock, rng, faults, workload, are_logged, memory)
        self.storage = SimulatedStorage(clock, rng, faults, workload, self.workers.attempts, remote)
        self.agents = Agents(clock, rng, faults, workload, self.workers, self.storage, remote)
        self.cluster = Cluster(clock, rng, faults, schedule, self.workers, self.agents)
        self.judge = Judge(self.workers, self.storage)
        self._start_judge = StartJudge(self.storage, remote, self.agents.nodes)
        self.journal: list[Record] = []
        self._judged = 0  # records that the judge has seen
        self.trace: list[str] | None = None
        self.steps = 0
        self.ended: Outcome | None = None
        self.kernel: Kernel | None = None  # of the living driver
        self._own_clock = DriverClock(clock)
        self._inbox: list[Any] = []
        self._answers: list[Any] = []
        self._heard: list[tuple[str, wire.Message]] = []
        self._epoch = 0
        self._written_until = 0.0
        self._wake_at = 0.0
        self._wakes = 0
        self._clock, self._rng, self._faults, self._schedule = clock, rng, faults, schedule
        self._is_disturbed = any(map(faults.is_planned, _DISTURBANCES))
        self._may_die = faults.is_planned("driver killed")
        self._connect()

    def _connect(self) -> None:
        workers, storage, cluster = self.workers, self.storage, self.cluster
        self.agents.deliver, storage.deliver, storage.judge = self.deliver, self.deliver, self.judge
        workers.reported, workers.disturb_nodes = self.judge.reported, cluster.disturb
        workers.hang_is_watched = lambda learnt: (
            self.state.spec.hang_timeout_s > 0 or (learnt and self.state.spec.learns_hangs)
        )
        workers.stop_is_watched = lambda: self.state.spec.stopped_grace_s > 0
        workers.memory.newest = lambda: self.state.snapshot if self.state.durable.outcome is None else None
        workers.lose_node, cluster.kill_driver, storage.die_here = cluster.lose, self.die_of, self.die_here

    @property
    def state(self) -> RunState:
        return self.kernel.state if self.kernel is not None else RunState()

    # A driver's life

    def start(self) -> None:
        """Replay, take stock of storage, ask for nodes, go."""
        self.ended = None
        self._epoch += 1
        self.storage.epoch = self._epoch
        past = read_past(self.journal)
        self.judge.recovered(past.state)
        self.judge.expects(past)
        self._note(f"driver {self._epoch} has replayed {len(self.journal)} records")
        found = self.storage.take_stock(past)
        self._start_judge.took_stock(past.state, found)
        plan, site = plan_of(self._schedule, self._epoch), site_of(self._schedule)
        self.kernel = Kernel(plan, site, past, self._epoch, found, self._audit)
        self.cluster.driver_starts()
        announced, self._inbox = self._inbox, []
        self._take_in([fx.Begin()])
        self._take_in([*announced, fx.NodesAnnounced()])

    def die(self) -> None:
        """Everything that the driver started ends with it, as far as it notices."""
        self._judge_the_rest()
        self.kernel = None
        for left in (self._inbox, self._answers, self._heard):
            left.clear()
        self._written_until = self._wake_at = 0.0
        self._clock.forget_all()
        self.workers.driver_died()
        self.storage.driver_died()

    def die_here(self) -> None:
        if self._may_die and self._faults.hit("driver killed"):
            self.die_of("driver killed")

    def die_of(self, kind: str) -> None:
        if self.kernel is not None or kind == "driver killed":
            self._faults.count(kind)
            self._note("the driver is killed")
            raise DriverKilled

    # Inputs

    def deliver(self, item: Any) -> None:
        """Put the input into the inbox. A busy driver takes several inputs at a time and journals them together."""
        self._inbox.append(item)
        if len(self._inbox) == 1 and self.kernel is not None:
            busy = self._rng.random()
            self._clock.after(busy if busy < 0.3 else 0.0, self._empty_inbox)

    def _empty_inbox(self) -> None:
        batch, self._inbox = self._inbox, []
        self._take_in(batch)
        for item in batch if self._is_disturbed else ():
            if self.kernel is not None:
                self._disturb(item)

    def _wake(self, number: int) -> None:
        """A timer is due."""
        if number == self._wakes and self.kernel is not None:
            self._wake_at = 0.0
            self._take_in([])

    def _take_in(self, items: Iterable[Any]) -> None:
        """Take an input. As in the real runtime, immediate answers to an effect come first."""
        self._answers.extend(items)
        try:
            while True:
                inputs, self._answers = self._answers, []
                for effect in self._handle(inputs):
                    self._carry_out(effect)
                    if self.kernel is None:
                        return
                self._start_judge.heard(inputs)
                if not self._answers:
                    break
        except StorageError as error:
            self._fail(error)
            return
        assert self.kernel is not None
        if self.kernel.finish is not None:
            self._finish(self.kernel.finish)
            return
        if self.kernel.is_written and self.kernel.has_begun:
            self.judge.rests(self.kernel.state, self._waits_for)
        self._set_alarm()

    def _waits_for(self, timer: Timer) -> bool:
        assert self.kernel is not None
        said = (item.timer for item in self._inbox if isinstance(item, ev.TimerFired))
        return timer in self.kernel.known.timers or timer in said

    def _handle(self, inputs: list[Any]) -> list[fx.Effect]:
        assert self.kernel is not None
        for item in inputs if self.trace is not None else ():
            self._note(f"in  {item}")
        for item in inputs:
            if isinstance(item, Exception):
                raise item
        self._start_judge.hears(inputs, self.kernel.state.attempt_number)
        try:
            return self.kernel.handle(inputs, self._own_clock.tell())
        except (DriverKilled, Violation, StorageError):
            raise
        except Exception as error:
            raise Violation("the kernel never raises", f"{type(error).__name__}: {error} on {inputs}") from error

    def _set_alarm(self) -> None:
        assert self.kernel is not None
        due = self._own_clock.when(self.kernel.due())
        if due != self._wake_at:
            self._wake_at = due
            self._wakes += 1
            if due < float("inf"):
                # Never immediately: a real timer that is due now still fires later.
                self._clock.at(max(due, self._clock.now + 0.001), self._wake, self._wakes)

    def _disturb(self, item: Any) -> None:
        said = wire.parts(item[1]) if type(item) is tuple else ()
        self._heard.extend((item[0], m) for m in said if hasattr(m, "attempt_number") and not isinstance(m, _SAID_ONCE))
        if self._faults.hit("message of an old attempt"):
            self._clock.after(self._rng.random() * 20.0, self._hear_again)
        for kind in ("stop asked", "stop asked between attempts"):
            if (kind == "stop asked" or not self.state.attempt_lives) and self._faults.hit(kind):
                self._faults.count(kind)
                self.deliver(ev.StopAsked())
                if self._rng.random() < 0.4:
                    self._clock.after(self._rng.random() * 5.0, self.deliver, ev.StopAsked(at_once=True))
        if self.state.attempt_lives and self._faults.hit("stop asked with grace"):
            self._faults.count("stop asked with grace")
            self.deliver(ev.StopAsked(grace_s=self._rng.choice((3.0, 15.0))))
        if self._faults.hit("stop asked at once"):
            self._faults.count("stop asked at once")
            self.deliver(ev.StopAsked(at_once=True))
        self._disturb_clocks()

    def _disturb_clocks(self) -> None:
        for kind, way in (("clock jumps", 1.0), ("clock stands still", -0.1)):
            if self._faults.hit(kind):
                self._faults.count(kind)
                assert self.kernel is not None
                waits = self.kernel.known.timers
                jumped = self._own_clock.jump(way * self._rng.uniform(30.0, 300.0))
                if timers.DOUBT in waits and jumped > 0:  # a jump of this clock makes no time pass for others
                    waits[timers.DOUBT] += jumped
                self._set_alarm()
        if self._faults.hit("wall clock jumps"):
            self._faults.count("wall clock jumps")
            self._own_clock.wall_skew += self._rng.choice((-1e6, 1e6))

    def _hear_again(self) -> None:
        old = [item for item in self._heard if item[1].attempt_number < self.state.attempt_number]  # type: ignore[attr-defined]
        if self.kernel is not None and old:
            self._faults.count("message of an old attempt")
            self._take_in([self._rng.choice(old)])

    # Effects

    def _carry_out(self, effect: fx.Effect) -> None:
        carry_out = _CARRY_OUT.get(type(effect))
        if carry_out is not None:
            if self._may_die:
                self.die_here()
            if self.trace is not None:
                self._note(f"out {effect}")
            carry_out(self, effect)

    def _send(self, effect: fx.Send) -> None:
        self._start_judge.sends(effect.node, effect.message)
        self.agents.send(effect.node, effect.message)

    def _tell_late_reports(self, _effect: fx.TellLateReports) -> None:
        """The driver is about to begin."""
        assert self.kernel is not None
        if not self.kernel.left_on_nodes:
            self.judge.took_up(self.kernel.known.past, self.state.durable, self.cluster.is_reachable)

    def _write(self, effect: fx.Journal) -> None:
        if not self._schedule.spec.nodes_hold_files:
            self._append(effect)
            self._answers.append(fx.Journalled(effect.number))
            return
        slow = 5.0 if self._rng.random() < 0.1 else 0.1
        self._written_until = max(self._written_until, self._clock.now) + self._rng.random() * slow
        self._clock.at(self._written_until, self._written, effect)

    def _written(self, effect: fx.Journal) -> None:
        self._append(effect)
        self._take_in([fx.Journalled(effect.number)])

    def _append(self, effect: fx.Journal) -> None:
        for kind, body in effect.entries:
            self.die_here()
            if self._faults.hit("torn journal tail"):
                self._faults.count("torn journal tail")
                self._note(f"the driver is killed while it writes {kind}")
                raise DriverKilled
            self.journal.append(Record(0, self._clock.now, kind, dict(body)))
            self.die_here()

    def _read_logs(self, effect: fx.ReadLogs) -> None:
        attempt = self.workers.attempts[effect.attempt_number]
        logs = {rank: attempt.log_of(attempt.workers[rank], self._schedule.workload) for rank in effect.paths}
        self._answers.append(fx.LogsRead(effect.attempt_number, logs))

    def _measure_disk(self, _effect: fx.MeasureDisk) -> None:
        self._answers.append(fx.DiskMeasured(self._schedule.free_space))

    def _finish(self, command: do.Finish) -> None:
        self._note(f"the run {command.outcome.value}")
        self.ended = command.outcome
        self.workers.all_end()  # which a driver waits for
        self.die()

    def _fail(self, error: StorageError) -> None:
        """The driver cannot continue, and journals that if it can. A person starts it again."""
        self._faults.count("a driver could not continue without storage")
        self._note(f"the driver cannot continue: {error}")
        self._judge_the_rest()
        self.workers.all_end()
        self.die()
        self._clock.after(REVIVED_AFTER_S, self.start)

    # The judge

    def _audit(self, turn: StepTaken) -> None:
        self.steps += 1
        if self.trace is not None:
            self._note(f"{turn.event}\n      {turn.before.phase.value} -> {turn.after.phase.value}")
            self.trace.extend(f"      do {command}" for command in turn.commands)
        self._judge(turn)
        self._start_judge.stepped(turn.commands)
        for command in turn.commands:
            if type(command) in COUNTED:
                count(command, turn, self._faults)
                self._fire_cancelled(command)

    def _judge(self, turn: StepTaken) -> None:
        event, before, after, commands = turn
        if event.durable:
            self._judge_next(event)
        self.judge.stepped(before, event, after, commands)

    def _judge_next(self, event: ev.Event) -> None:
        if self._judged >= len(self.journal):
            raise Violation("0 journal before act", f"{event} is acted on and not journalled")
        record = self.journal[self._judged]
        self._judged += 1
        journalled = msgspec.convert(record.body, ev.DURABLE[record.kind])
        if type(event) is not type(journalled):
            raise Violation("0 journal before act", f"{event} is acted on, and {journalled} is journalled")
        self.judge.journalled(event)

    def _judge_the_rest(self) -> None:
        """Judge what the driver had journalled before it was killed, and could not act on any more."""
        for turn in self.kernel.waiting if self.kernel is not None else ():
            if turn.event.durable and self._judged == len(self.journal):
                break
            self._judge(turn)
        assert self._judged == len(self.journal)

    def _fire_cancelled(self, command: do.Command) -> None:
        if not isinstance(command, do.CancelTimer) or self.kernel is None:
            return
        if command.timer in self.kernel.known.timers and self._faults.hit("timer fired while it was cancelled"):
            self._faults.count("timer fired while it was cancelled")
            self._clock.after(0.0, self.deliver, ev.TimerFired(command.timer))

    def _note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self._clock.now:8.3f}  {text}")


_CARRY_OUT: dict[type[fx.Effect], Callable[[SimulatedRuntime, Any], None]] = {
    fx.Send: SimulatedRuntime._send,
    fx.Journal: SimulatedRuntime._write,
    fx.ReadLogs: SimulatedRuntime._read_logs,
    fx.MeasureDisk: SimulatedRuntime._measure_disk,
    fx.TellLateReports: SimulatedRuntime._tell_late_reports,
    **dict.fromkeys(
        (fx.Commit, fx.Verify, fx.Delete, fx.Quarantine, fx.DiscardStaged, fx.Collect, fx.Adopt),
        lambda runtime, effect: runtime.storage.carry_out(effect),
    ),
}
