"""Groups of workers without processes.

Each rank's messages arrive in the order in which it said them, those of different ranks in any order, and the news
that a group is gone arrives after all that the group said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from holdfast.core.failures import Evidence
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import RunState

from .clock import Clock
from .fake_depot import FakeDepot
from .fake_group import Group, Node, Status, Worker
from .schedule import FENCE_S, Faults, Workload

STOP_GRACE_S = 5.0
_OF_PEERS = (  # what comes of it when those are gone that a worker talks to
    Evidence(exception="RuntimeError", message="connection closed by peer"),
    Evidence(signal=6),
    Evidence(exit_code=1),
)
News = Callable[[RunState], list[ev.Event]]  # what the driver makes of what it hears, by what it knows


class FakeEngine:
    def __init__(self, clock: Clock, rng: Random, faults: Faults, workload: Workload) -> None:
        self.group: Group | None = None
        self.groups: dict[int, Group] = {}  # by generation
        self.depot = FakeDepot(clock, rng, faults, workload, self.groups)
        self.stalled = False  # whether reports with files wait
        self.deliver: Callable[[ev.Event | News], None]
        self.reported: Callable[[int, int], None]  # generation, report number
        self.noticed: Callable[[int, int, int], News]  # generation, rank, reports
        self.disturb_nodes: Callable[[Worker], None] | None = None
        self._clock, self._rng, self._faults, self._workload = clock, rng, faults, workload
        self._bugs = 0  # how often the script will raise at that report

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def group_lives(self) -> bool:
        return self.group is not None and not self.group.over

    def driver_died(self) -> None:
        """Whoever does not hear of it lives on for a while, and does nothing that counts."""
        self.stalled = False
        if self.group is not None:
            self.group.over = True
        for worker in [worker for group in self.groups.values() for worker in group.workers if worker.lives]:
            if worker.node is None or not (worker.ends_at or worker.node.is_cut_off(self._clock.now)):
                worker.status = Status.DEAD
                continue
            if not worker.ends_at:
                self._faults.count("a worker outlived its driver")
                worker.is_silent, worker.ends_at = True, self._clock.now + self._rng.random() * FENCE_S
            self._clock.at(max(self._clock.now, worker.ends_at), self._end_alone, worker)

    def all_end(self) -> None:
        for group in self.groups.values():
            for worker in group.workers:
                worker.status = Status.DEAD if worker.lives else worker.status

    def _end_alone(self, worker: Worker) -> None:
        worker.status = Status.DEAD

    def outlived_on(self, node: str) -> float:
        """Until when workers of an earlier driver live there."""
        there = [w for g in self.groups.values() for w in g.workers if w.lives and w.node is not None and w.ends_at]
        return max((w.ends_at for w in there if w.node is not None and w.node.id == node), default=0.0)

    def start(self, command: do.StartGroup, homes: Sequence[Node] | None) -> None:
        nodes: Sequence[Node | None] = homes if homes is not None else [None] * command.world_size
        group = self.group = self.groups[command.generation] = Group(command, nodes)
        for worker in group.workers:
            node = worker.node
            if node is not None:
                group.heard_until = max(group.heard_until, node.lost_at)
            if node is not None and (not node.lives or node.cut_until == math.inf):
                worker.is_silent, worker.status = True, Status.DEAD
            else:
                self._reach(worker, self._rng.random() * 2.0, self._enter, group, worker)
        self._say_gone_if_so(group)

    def node_of(self, generation: int, rank: int) -> str:
        node = self.groups[generation].homes[rank] if generation in self.groups else None
        return node.id if node is not None else ""

    def _reach(self, worker: Worker, latency: float, call: Callable[..., None], *args: object) -> None:
        """What is sent to a worker whose node is cut off comes late, or never."""
        cut_until = 0.0 if worker.node is None else worker.node.cut_until
        if cut_until < math.inf:
            self._clock.at(max(self._clock.now, cut_until) + latency, call, *args)

    def vanish(self, worker: Worker) -> None:
        """It ends without a word, with its node."""
        group = self.group
        if group is not None and worker.lives:
            worker.is_silent, worker.status = True, Status.DEAD
            self._say_gone_if_so(group)

    def fail_of_peers(self, node: Node) -> None:
        """Workers elsewhere notice that their peers are gone, often before the driver does."""
        assert self.group is not None
        for worker in self.group.workers:
            if worker.lives and worker.node is not node and self._rng.random() < 0.7:
                self._die(self.group, worker, self._rng.choice(_OF_PEERS))

    def notice(self, command: do.AskHandover) -> None:
        group = self.groups.get(command.generation)
        for worker in group.workers if group is not None else ():
            self._reach(worker, 0.1, self._notice, group, worker)

    def _notice(self, group: Group, worker: Worker) -> None:
        """It says from a thread of its own how far it is, as soon as it listens."""
        if not worker.lives:
            return
        worker.notice_waits = worker.frozen or worker.status is Status.STARTING
        if not worker.notice_waits:
            worker.noticed, worker.handover_at = True, None
            self._say(group, worker, self.noticed(group.generation, worker.rank, worker.reports))

    def hand_over_at(self, generation: int, index: int) -> None:
        group = self.groups[generation]
        for worker in group.workers:
            self._reach(worker, 0.1, self._learn_where, group, worker, index)

    def _learn_where(self, group: Group, worker: Worker, index: int) -> None:
        worker.handover_at = index
        if worker.is_parked or (worker.waits_at is not None and worker.waits_at < index):
            worker.is_parked, worker.waits_at = False, None
            self._next_turn(group, worker)

    def dump_stacks(self, command: do.DumpStacks) -> None:
        """They tell who hangs, or name another one, or nobody, or they never come."""
        group, luck = self.group, self._rng.random()
        if group is None or luck < 0.2:
            return
        stuck = [worker.rank for worker in group.workers if worker.lives and worker.stuck]
        rank = -1
        if stuck and luck < 0.6:
            rank = stuck[0]
        elif stuck and luck < 0.8:
            rank = self._rng.randrange(len(group.workers))
        self._clock.after(self._rng.random() * 2.5, self.deliver, ev.StacksTaken(command.generation, rank))

    def stop(self, command: do.StopGroup) -> None:
        if command.generation not in self.groups:  # there was no room for it
            self.deliver(ev.GroupGone(command.generation))
        group = self.group
        if group is None or group.generation != command.generation:
            return
        if group.over:
            if self._faults.hit("group gone said twice"):
                self._faults.count("group gone said twice")
                self._say_gone(group)
            return
        for worker in group.workers:
            if worker.lives:
                grace = STOP_GRACE_S if command.graceful else 0.1
                self._reach(worker, self._rng.random() * grace, self._kill, group, worker)

    def count(self, occasion: str) -> None:
        self._faults.count(occasion)

    def settled(self, generation: int, index: int) -> None:
        """Nobody waits for that checkpoint any more: those who waited until it was durable go on."""
        group = self.groups[generation]
        for worker in group.waiting.pop(index, ()):
            self._next_turn(group, worker)

    def _say(self, group: Group, worker: Worker, said: ev.Event | News) -> None:
        if worker.is_silent:
            return
        if isinstance(said, (ev.Progressed, ev.ShardStaged)):  # nothing else speaks of reports
            worker.told = worker.reports
        latency = (3.0 if self._rng.random() < 0.05 else 0.1) * self._rng.random()
        cut_until = 0.0 if worker.node is None else worker.node.cut_until
        worker.heard_until = max(worker.heard_until, cut_until, self._clock.now + latency)
        group.heard_until = max(group.heard_until, worker.heard_until)
        self._clock.at(worker.heard_until, self.deliver, said)

    def _say_progress(self, group: Group, worker: Worker) -> None:
        """Reports without files travel together; what is said next covers them, and nobody ends without a word."""
        if worker.unsaid:
            worker.unsaid = False
            self._say(group, worker, ev.Progressed(group.generation, worker.rank, worker.reports))

    def _enter(self, group: Group, worker: Worker) -> None:
        if not worker.lives or worker.stuck:
            return
        if self._faults.hit("start-up hang"):
            self._faults.count("start-up hang")
            worker.stuck = True
            return
        if self._faults.hit("start-up death"):
            self._faults.count("start-up death")
            self._die(group, worker, Evidence(exit_code=1, started=False))
            return
        worker.status = Status.TRAINING
        self._say(group, worker, ev.WorkerReady(group.generation, worker.rank))
        if worker.notice_waits:
            self._notice(group, worker)
        self._next_turn(group, worker)

    def _next_turn(self, group: Group, worker: Worker) -> None:
        delay = self._workload.pace[worker.rank] * (0.5 + self._rng.random())
        self._clock.after(delay, self._turn, group, worker)

    def _turn(self, group: Group, worker: Worker) -> None:
        """One step of the train function: a fault, a report, or the return."""
        if not worker.lives or worker.stuck or self._meets_a_fault(group, worker):
            return
        report = group.base + worker.reports + 1
        if report > self._workload.totals[worker.rank]:
            self._say_progress(group, worker)
            worker.status = Status.RETURNED
            self._say(group, worker, ev.WorkerReturned(group.generation, worker.rank))
            self._say_gone_if_so(group)
            return
        if worker.noticed and worker.handover_at is None:
            worker.is_parked = True
            return
        if self.stalled and self._workload.has_files(worker.rank, report):
            self._next_turn(group, worker)
            return
        index = worker.reports
        worker.reports += 1
        self.reported(group.generation, report)
        if self._workload.has_files(worker.rank, report):
            group.staged.setdefault(index, set()).add(worker.rank)
            if not worker.is_silent:
                group.files.setdefault(index, set()).add(worker.rank)
            name, validate = self._workload.name(report), self._workload.validates(report)
            urgent = self._workload.is_urgent(report)
            self._say(group, worker, ev.ShardStaged(group.generation, worker.rank, index, name, validate, urgent))
            worker.unsaid = False
            if worker.handover_at is not None and index >= worker.handover_at:
                self._faults.count("a worker waited at a hand-over")
                worker.waits_at = index
                return
            if urgent:
                group.waiting.setdefault(index, []).append(worker)
                return
        else:
            worker.unsaid = True
            if self._rng.random() < 0.7:
                self._say_progress(group, worker)
        self._next_turn(group, worker)

    def _meets_a_fault(self, group: Group, worker: Worker) -> bool:
        if self.disturb_nodes is not None:
            self.disturb_nodes(worker)
        if not worker.lives:
            return True
        is_bad = group.base + worker.reports + 1 == self._workload.bug_at
        if is_bad and self._bugs == 0 and self._faults.hit("bug at one report"):
            self._bugs = self._workload.bug_times
        if is_bad and self._bugs > 0:
            self._faults.count("bug at one report")
            self._bugs -= 1
            self._die(group, worker, Evidence(exception="KeyError", message="step"))
        elif self._faults.hit("worker crash"):
            self._faults.count("worker crash")
            oom = self._rng.random() < 0.3
            self._die(group, worker, Evidence(signal=9, oom_killed=oom))
        elif self._faults.hit("worker exception"):
            self._faults.count("worker exception")
            self._die(group, worker, Evidence(exception="ValueError", message="bad"))
        elif self._faults.hit("several workers at once"):
            self._faults.count("several workers at once")
            for other in group.workers:
                if other is worker or (other.lives and self._rng.random() < 0.7):
                    self._die(group, other, Evidence(node_lost=True))
            if self._rng.random() < 0.5:
                self.depot.lose_all(group)
        elif self._faults.hit("hang"):
            # A hang that no watch is set for is not the machine's to notice.
            if self.hang_is_watched(all(w.told >= 3 for w in group.workers if w.lives)):
                self._faults.count("hang")
                worker.stuck = True
        elif self._faults.hit("SIGSTOP"):
            self._faults.count("SIGSTOP")
            self._freeze(group, worker)
        return not worker.lives or worker.stuck

    hang_is_watched: Callable[[bool], bool]  # whether all have made some reports
    stop_is_watched: Callable[[], bool]

    def _freeze(self, group: Group, worker: Worker) -> None:
        worker.stuck = worker.frozen = True
        self._say(group, worker, ev.WorkerStopped(group.generation, worker.rank, stopped=True))
        if not self.stop_is_watched() or self._rng.random() < 0.6:
            self._clock.after(self._rng.random() * 4.0, self._thaw, group, worker)

    def _thaw(self, group: Group, worker: Worker) -> None:
        if worker.lives:
            worker.stuck = worker.frozen = False
            self._say(group, worker, ev.WorkerStopped(group.generation, worker.rank, stopped=False))
            if worker.notice_waits:
                self._notice(group, worker)
            self._turn(group, worker)

    def _die(self, group: Group, worker: Worker, evidence: Evidence) -> None:
        self._say_progress(group, worker)
        worker.status = Status.DEAD
        node, at = self.node_of(group.generation, worker.rank), group.base + worker.reports
        self._say(group, worker, ev.WorkerFailed(group.generation, worker.rank, evidence, node, at))
        self._say_gone_if_so(group)

    def _kill(self, group: Group, worker: Worker) -> None:
        if not worker.lives:
            return
        if self._rng.random() < 0.5:
            started = worker.status is not Status.STARTING
            self._die(group, worker, Evidence(signal=15, started=started))
        else:
            self._say_progress(group, worker)
            worker.status = Status.DEAD
            self._say_gone_if_so(group)

    def _say_gone_if_so(self, group: Group) -> None:
        if not group.over and not any(worker.lives for worker in group.workers):
            group.over = True
            self._say_gone(group)

    def _say_gone(self, group: Group) -> None:
        when = max(group.heard_until, self._clock.now) + self._rng.random() * 0.2
        self._clock.at(when, self.deliver, ev.GroupGone(group.generation))
