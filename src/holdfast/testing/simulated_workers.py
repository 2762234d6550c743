"""Workers without processes: what they do by themselves and on the words of their agents, and what they say to them.

Each rank's messages arrive in the order in which it said them, those of different ranks in any order, and the news
that a node has no worker any more arrives after all that those said.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import HandoverAt, Notice, Raised, Reply, Report, Request, SnapshotKept

from .clock import Clock
from .schedule import FENCE_S, Faults, Workload
from .simulated_group import VALIDATION, Group, Node, Status, Worker, report_line
from .simulated_memory import SimulatedMemory

STOP_GRACE_S = 5.0
_ENTRY = 'Thread 0x1 (most recent call first):\n  File "train.py", line 7 in '


class Death:
    """How a worker ends."""

    def __init__(
        self, raised: str = "", exit_code: int | None = None, signal: int | None = None, oom: bool = False
    ) -> None:
        self.raised, self.exit_code, self.signal, self.oom = raised, exit_code, signal, oom


_OF_PEERS = (  # what comes of it when those are gone that a worker talks to
    Death("RuntimeError: connection closed by peer"),
    Death(signal=6),
    Death(exit_code=1),
)


class Workers:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        faults: Faults,
        workload: Workload,
        are_logged: bool,
        memory: SimulatedMemory,
    ) -> None:
        self.group: Group | None = None
        self.groups: dict[int, Group] = {}  # by generation
        self.say: Callable[[Node, wire.Message], None]  # to the driver, at once
        self.reported: Callable[[int, int], None]  # generation, report number
        self.disturb_nodes: Callable[[Worker], None]
        self.hang_is_watched: Callable[[bool], bool]  # whether all have made some reports
        self.stop_is_watched: Callable[[], bool]
        self._clock, self._rng, self._faults, self._workload = clock, rng, faults, workload
        self.memory, self.takes_snapshots = memory, memory.is_used
        memory.say = self._say
        self._are_logged = are_logged
        self._bugs = 0  # how often the script will raise at that report
        self._requests = 0

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def attempt_lives(self) -> bool:
        """Whether workers live that the driver has started."""
        return self.group is not None and any(w.lives and not w.ends_at for w in self.group.workers)

    def driver_died(self) -> None:
        """Whoever does not hear of it lives on for a while, and does nothing that counts."""
        for worker in [worker for group in self.groups.values() for worker in group.workers if worker.lives]:
            if not (worker.ends_at or worker.node.is_cut_off(self._clock.now)):
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

    def outlived_on(self, machine: str) -> float:
        """Until when workers of an earlier driver live there."""
        there = [w for g in self.groups.values() for w in g.workers if w.lives and w.ends_at]
        return max((w.ends_at for w in there if w.node.machine.name == machine), default=0.0)

    def on(self, node: Node) -> list[Worker]:
        return [] if self.group is None else [worker for worker in self.group.workers if worker.node is node]

    def node_of(self, generation: int, rank: int) -> str:
        return self.groups[generation].workers[rank].node.id if generation in self.groups else ""

    def count(self, occasion: str) -> None:
        self._faults.count(occasion)

    # What agents tell them

    def start(self, node: Node, order: wire.StartWorkers, is_reached: bool) -> None:
        self.memory.starts(node, order)
        group = self.groups.get(order.generation)
        if group is None:
            group = self.group = self.groups[order.generation] = Group(order.generation, order.base, order.checkpoint)
        for place in order.places:
            worker = Worker(place.rank, node)
            worker.is_logged = self._are_logged
            worker.never_reports = self._workload.rank_zero_only and place.rank > 0
            group.workers.append(worker)
            if not is_reached:
                worker.is_silent, worker.status = True, Status.DEAD
            else:
                self._clock.at(max(self.now, node.cut_until) + self._rng.random() * 2.0, self._enter, group, worker)
        group.workers.sort(key=lambda worker: worker.rank)

    def stop(self, node: Node, order: wire.StopWorkers) -> None:
        group = self.groups.get(order.generation)
        there = [] if group is None else [w for w in group.workers if w.node is node and w.lives]
        for worker in there:
            grace = STOP_GRACE_S if order.graceful else 0.1
            self._clock.after(self._rng.random() * grace, self._kill, group, worker)
        if not there:
            self._say_gone(node, order.generation)
        elif self._faults.hit("group gone said twice"):
            self._faults.count("group gone said twice")
            self._clock.after(STOP_GRACE_S + self._rng.random() * 5.0, self._say_gone, node, order.generation)

    def notice(self, node: Node, message: Notice) -> None:
        group = self.groups.get(message.generation)
        for worker in group.workers if group is not None else ():
            if worker.node is node:
                self._clock.after(0.1, self._notice, group, worker)

    def _notice(self, group: Group, worker: Worker) -> None:
        """It says from a thread of its own how far it is, as soon as it listens."""
        if not worker.lives:
            return
        worker.notice_waits = worker.frozen or worker.status is Status.STARTING
        if not worker.notice_waits:
            worker.noticed, worker.handover_at = True, None
            self._say(worker, wire.WorkerNoticed(group.generation, worker.rank, worker.reports))

    def hand_over_at(self, node: Node, message: HandoverAt) -> None:
        group = self.groups[message.generation]
        for worker in group.workers:
            if worker.node is node:
                self._clock.after(0.1, self._learn_where, group, worker, message.index)

    def _learn_where(self, group: Group, worker: Worker, index: int) -> None:
        worker.handover_at = index
        if worker.is_parked or (worker.waits_at is not None and worker.waits_at < index):
            worker.is_parked, worker.waits_at = False, None
            self._next_turn(group, worker)

    def hear_reply(self, node: Node, message: Reply) -> None:
        """What a worker waited for is durable, or never will be."""
        group = self.groups[message.generation]
        for index, waiting in list(group.waiting.items()):
            for worker in [w for w in waiting if w.rank == message.rank and w.node is node]:
                waiting.remove(worker)
                self._next_turn(group, worker)
            if not waiting:
                del group.waiting[index]

    def kept(self, node: Node, message: SnapshotKept) -> None:
        group = self.groups[message.generation]
        self.memory.kept([worker for worker in group.workers if worker.node is node], message)

    def dump_stacks(self, node: Node, generation: int) -> None:
        """They tell who hangs, or name another one, or nobody, or they never come."""
        luck = self._rng.random()
        if luck < 0.2:
            return
        texts: dict[int, str] = {}
        nobody = self.group is None or not any(worker.stuck for worker in self.group.workers)
        for worker in self.on(node):
            waits = not worker.stuck if nobody or luck < 0.7 else self._rng.random() < 0.5
            texts[worker.rank] = f"{_ENTRY}{'all_reduce' if waits else 'step'}\n"
        self._clock.after(self._rng.random() * 2.5, self.say, node, wire.Stacks(generation, texts))

    # What becomes of them

    def vanish(self, worker: Worker) -> None:
        """It ends without a word, with its node."""
        if worker.lives:
            worker.is_silent, worker.status = True, Status.DEAD

    def fail_of_peers(self, node: Node) -> None:
        """Workers elsewhere notice that their peers are gone, often before the driver does."""
        assert self.group is not None
        for worker in self.group.workers:
            if worker.lives and worker.node is not node and self._rng.random() < 0.7:
                self._die(self.group, worker, self._rng.choice(_OF_PEERS))

    def _say(self, worker: Worker, message: wire.Message) -> None:
        if worker.is_silent:
            return
        if isinstance(message, wire.Reports):
            worker.told = worker.reports
        latency = (3.0 if self._rng.random() < 0.05 else 0.1) * self._rng.random()
        worker.heard_until = max(worker.heard_until, worker.node.cut_until, self._clock.now + latency)
        if worker.heard_until < math.inf:
            self._clock.at(worker.heard_until, self.say, worker.node, message)

    def _say_reports(self, group: Group, worker: Worker) -> None:
        """Reports without files travel together; what is said next covers them, and nobody ends without a word."""
        if worker.unsent:
            reports, worker.unsent = worker.unsent, []
            self._say(worker, wire.Reports(group.generation, worker.rank, reports))

    def _enter(self, group: Group, worker: Worker) -> None:
        if not worker.lives or worker.stuck:
            return
        if self._faults.hit("start-up hang"):
            self._faults.count("start-up hang")
            worker.stuck = True
            return
        if self._faults.hit("start-up death"):
            self._faults.count("start-up death")
            self._die(group, worker, Death(exit_code=1))
            return
        worker.status = Status.TRAINING
        self._say(worker, wire.WorkerIsReady(group.generation, worker.rank))
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
        number = group.base + worker.reports + worker.steps + 1
        if number > self._workload.totals[worker.rank]:
            self._say_reports(group, worker)
            worker.status = Status.RETURNED
            self._say(worker, wire.WorkerHasReturned(group.generation, worker.rank, b""))
            self._say_gone_if_so(group, worker.node)
        elif worker.never_reports:
            self._faults.count("a rank was silent")
            worker.steps += 1
            self._next_turn(group, worker)
        elif worker.noticed and worker.handover_at is None:
            worker.is_parked = True
        elif self._waits_for_storage(worker, number):
            self._next_turn(group, worker)
        elif self._report(group, worker, number):
            self._keep_in_memory(group, worker)
            self._next_turn(group, worker)

    def _keep_in_memory(self, group: Group, worker: Worker) -> None:
        if self.takes_snapshots:
            self._say_reports(group, worker)
            self.memory.completed(group, worker)

    def _waits_for_storage(self, worker: Worker, number: int) -> bool:
        return worker.node.stalled and self._workload.has_files(worker.rank, number)

    def _report(self, group: Group, worker: Worker, number: int) -> bool:
        """Whether the worker continues behind it."""
        index = worker.reports
        worker.reports += 1
        self.reported(group.generation, number)
        line = report_line(index, self._workload.score(number))
        if not self._workload.has_files(worker.rank, number):
            worker.unsent.append(Report(index, line))
            if self._rng.random() < 0.7:
                self._say_reports(group, worker)
            return True
        if index not in group.staged and self._faults.hit("gather failure"):
            group.clashing.add(index)
        group.staged.setdefault(index, set()).add(worker.rank)
        if index in group.clashing and 0 in group.staged[index] and len(group.staged[index]) == 2:
            self._faults.count("gather failure")
        if not worker.is_silent or worker.is_logged:
            group.files.setdefault(index, set()).add(worker.rank)
        urgent, name = self._workload.is_urgent(number), self._workload.name(number)
        validation = VALIDATION if self._workload.validates(number) else b""
        worker.unsent.append(Report(index, line, True, name, validation, urgent))
        self._say_reports(group, worker)
        if worker.handover_at is not None and index >= worker.handover_at:
            self._faults.count("a worker waited at a hand-over")
            worker.waits_at = index
            return False
        if urgent:
            group.waiting.setdefault(index, []).append(worker)
            self._requests += 1
            request = Request(self._requests, "durable", b"", worker.reports)
            self._say(worker, wire.Asked(group.generation, worker.rank, request))
        return not urgent

    def _meets_a_fault(self, group: Group, worker: Worker) -> bool:
        self.disturb_nodes(worker)
        if not worker.lives:
            return True
        is_bad = group.base + worker.reports + 1 == self._workload.bug_at
        if is_bad and self._bugs == 0 and self._faults.hit("bug at one report"):
            self._bugs = self._workload.bug_times
        if is_bad and self._bugs > 0:
            self._faults.count("bug at one report")
            self._bugs -= 1
            self._die(group, worker, Death("KeyError: step"))
        elif self._faults.hit("worker crash"):
            self._faults.count("worker crash")
            self._die(group, worker, Death(signal=9, oom=self._rng.random() < 0.3))
        elif self._faults.hit("worker exception"):
            self._faults.count("worker exception")
            self._die(group, worker, Death("ValueError: bad"))
        elif self._faults.hit("several workers at once"):
            self._faults.count("several workers at once")
            for other in group.workers:
                if other is worker or (other.lives and self._rng.random() < 0.7):
                    self._die(group, other, Death(signal=9))
        elif self._faults.hit("hang"):
            # A hang that no watch is set for is not the machine's to notice.
            if self.hang_is_watched(all(w.never_reports or w.told >= 3 for w in group.workers if w.lives)):
                self._faults.count("hang")
                worker.stuck = True
        elif self._faults.hit("SIGSTOP"):
            self._faults.count("SIGSTOP")
            self._freeze(group, worker)
        return not worker.lives or worker.stuck

    def _freeze(self, group: Group, worker: Worker) -> None:
        worker.stuck = worker.frozen = True
        self._say(worker, wire.WorkerIsStopped(group.generation, worker.rank, True))
        if not self.stop_is_watched() or self._rng.random() < 0.6:
            self._clock.after(self._rng.random() * 4.0, self._thaw, group, worker)

    def _thaw(self, group: Group, worker: Worker) -> None:
        if worker.lives:
            worker.stuck = worker.frozen = False
            self._say(worker, wire.WorkerIsStopped(group.generation, worker.rank, False))
            if worker.notice_waits:
                self._notice(group, worker)
            self._turn(group, worker)

    def _die(self, group: Group, worker: Worker, death: Death) -> None:
        self._say_reports(group, worker)
        started = worker.status is not Status.STARTING
        worker.status = Status.DEAD
        kind, _, text = death.raised.partition(": ")
        raised = Raised(0.0, kind, text, "", b"", started) if death.raised else None
        how = (death.exit_code, death.signal, started, death.oom)
        self._say(worker, wire.WorkerHasFailed(group.generation, worker.rank, raised, *how, last_lines=[]))
        self._say_gone_if_so(group, worker.node)

    def _kill(self, group: Group, worker: Worker) -> None:
        if not worker.lives:
            return
        if self._rng.random() < 0.5:
            self._die(group, worker, Death(signal=15))
        else:
            self._say_reports(group, worker)
            worker.status = Status.DEAD
            self._say_gone_if_so(group, worker.node)

    def _say_gone_if_so(self, group: Group, node: Node) -> None:
        if not any(worker.lives for worker in group.workers if worker.node is node):
            self._say_gone(node, group.generation)

    def _say_gone(self, node: Node, generation: int) -> None:
        group = self.groups.get(generation)
        there = [worker for worker in group.workers if worker.node is node] if group is not None else []
        when = max([self._clock.now, node.cut_until, *(worker.heard_until for worker in there)])
        if when < math.inf:
            self._clock.at(when + self._rng.random() * 0.2, self.say, node, wire.WorkersGone(generation))
