"""Workers without processes: what they do by themselves and on messages of their agents, and what they send.

Messages of one rank arrive in order, those of different ranks in any order. The news that a node has no worker left
arrives after all messages of its workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import HandoverAt, Notice, Raised, Reply, Report, SnapshotKept, WorkerRequest

from .clock import Clock
from .schedule import FENCE_S, Faults, Workload
from .simulated_attempt import OF_PEERS, VALIDATION, Death, Node, SimulatedAttempt, Status, Worker, report_line
from .simulated_memory import SimulatedMemory

STOP_GRACE_S = 5.0
_ENTRY = 'Thread 0x1 (most recent call first):\n  File "train.py", line 7 in '
_FAULTS_OF_WORKERS = (
    *("bug at one report", "worker crash", "worker exception"),
    *("several workers at once", "hang", "SIGSTOP"),
)


class Workers:
    def __init__(
        self, clock: Clock, rng: Random, faults: Faults, workload: Workload, are_logged: bool, memory: SimulatedMemory
    ) -> None:
        self.attempt: SimulatedAttempt | None = None
        self.attempts: dict[int, SimulatedAttempt] = {}  # by attempt
        self.say: Callable[[Node, wire.Message], None]  # to the driver, immediately
        self.reported: Callable[[int, int], None]  # attempt, report number
        self.disturb_nodes: Callable[[Worker], None]
        self.lose_node: Callable[[Node], None]
        self.hang_is_watched: Callable[[bool], bool]  # whether all have made some reports
        self.stop_is_watched: Callable[[], bool]
        self._clock, self._rng, self._faults, self._workload = clock, rng, faults, workload
        self.memory, self.takes_snapshots = memory, memory.is_used
        self._may_fail = any(map(faults.is_planned, _FAULTS_OF_WORKERS))
        memory.say, self._are_logged = self._say, are_logged
        self._bugs = 0  # how many more times the script raises at that report
        self._requests = 0

    @property
    def now(self) -> float:
        return self._clock.now

    @property
    def attempt_lives(self) -> bool:
        """Whether any worker that the driver started still lives."""
        return self.attempt is not None and any(w.lives and not w.ends_at for w in self.attempt.processes)

    def driver_died(self) -> None:
        """A worker that does not notice it keeps running for a while, and does nothing that counts."""
        for worker in [worker for attempt in self.attempts.values() for worker in attempt.processes if worker.lives]:
            if not (worker.ends_at or worker.node.is_cut_off(self._clock.now)):
                worker.status = Status.DEAD
                continue
            if not worker.ends_at:
                self._faults.count("a worker outlived its driver")
                worker.is_silent, worker.ends_at = True, self._clock.now + self._rng.random() * FENCE_S
            self._clock.at(max(self._clock.now, worker.ends_at), self._end_alone, worker)

    def all_end(self) -> None:
        for attempt in self.attempts.values():
            for worker in attempt.processes:
                worker.status = Status.DEAD if worker.lives else worker.status

    def _end_alone(self, worker: Worker) -> None:
        worker.status = Status.DEAD

    def outlived_on(self, machine: str) -> float:
        """Until when workers of an earlier driver live there."""
        there = [w for g in self.attempts.values() for w in g.processes if w.lives and w.ends_at]
        return max((w.ends_at for w in there if w.node.machine.name == machine), default=0.0)

    def on(self, node: Node) -> list[Worker]:
        return [] if self.attempt is None else [worker for worker in self.attempt.processes if worker.node is node]

    def node_of(self, attempt_number: int, rank: int) -> str:
        return self.attempts[attempt_number].workers[rank].node.id if attempt_number in self.attempts else ""

    def count(self, occasion: str) -> None:
        self._faults.count(occasion)

    # Messages from agents

    def start(self, node: Node, order: wire.StartWorkers, is_reached: bool) -> None:
        self.memory.starts(node, order)
        node.orders[order.attempt_number] += 1
        attempt = self.attempts.get(order.attempt_number)
        if attempt is None:
            attempt = self.attempt = self.attempts[order.attempt_number] = SimulatedAttempt(
                order.attempt_number, order.base, order.checkpoint
            )
        for place in order.places:
            worker = Worker(place.rank, node, place.local_rank)
            worker.is_logged, worker.complete = self._are_logged, order.snapshot
            worker.never_reports = self._workload.rank_zero_only and place.rank > 0
            attempt.workers.append(worker)
            if not is_reached:
                worker.is_silent, worker.status = True, Status.DEAD
            else:
                self._clock.at(max(self.now, node.cut_until) + self._rng.random() * 2.0, self._enter, attempt, worker)
        attempt.workers.sort(key=lambda worker: worker.rank)

    def stop(self, node: Node, order: wire.StopWorkers) -> None:
        attempt = self.attempts.get(order.attempt_number)
        there = [] if attempt is None else [w for w in attempt.processes if w.node is node and w.lives]
        for worker in there:
            grace = STOP_GRACE_S if order.graceful else 0.1
            self._clock.after(self._rng.random() * grace, self._kill, attempt, worker)
        if not there:
            self._say_gone(node, order.attempt_number)
        elif self._faults.hit("attempt gone said twice"):
            self._faults.count("attempt gone said twice")
            self._clock.after(STOP_GRACE_S + self._rng.random() * 5.0, self._say_gone, node, order.attempt_number)

    def obey_live(self, _node: Node, order: wire.Message) -> None:
        """Messages to workers whose steps can be repeated."""
        raise AssertionError(f"{order} to workers that end with their peers")

    def strike(self, kind: str, which: int) -> None:
        """Kill the target now: a worker, a standby or a node, by number among the living ones."""
        if self.attempt is None or (victim := self.attempt.target(kind, which)) is None:
            return
        if kind == "node":
            self.lose_node(victim.node)
        else:
            self._strike(self.attempt, victim)

    def _strike(self, attempt: SimulatedAttempt, victim: Worker) -> None:
        if victim.lives:
            self._die(attempt, victim, Death(signal=9))

    def notice(self, node: Node, message: Notice) -> None:
        attempt = self.attempts.get(message.attempt_number)
        for worker in attempt.workers if attempt is not None else ():
            if worker.node is node:
                self._clock.after(0.1, self._notice, attempt, worker)

    def _notice(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        """A separate thread of the worker says how far it is, as soon as it reads messages."""
        if not worker.lives:
            return
        worker.notice_waits = worker.frozen or worker.status is Status.STARTING
        if not worker.notice_waits:
            worker.noticed, worker.handover_at = True, None
            self._say(worker, wire.WorkerNoticed(attempt.attempt_number, worker.rank, worker.reports, worker.process))

    def hand_over_at(self, node: Node, message: HandoverAt) -> None:
        attempt = self.attempts[message.attempt_number]
        for worker in attempt.workers:
            if worker.node is node:
                self._clock.after(0.1, self._learn_where, attempt, worker, message.index)

    def _learn_where(self, attempt: SimulatedAttempt, worker: Worker, index: int) -> None:
        worker.handover_at = index
        if worker.is_parked or (worker.waits_at is not None and worker.waits_at < index):
            worker.is_parked, worker.waits_at = False, None
            self._next_turn(attempt, worker)

    def hear_reply(self, node: Node, message: Reply) -> None:
        """The checkpoint that a worker waited for is durable, or will never be."""
        attempt = self.attempts[message.attempt_number]
        for index, waiting in list(attempt.waiting.items()):
            for worker in [w for w in waiting if (w.rank, w.node, w.process) == (message.rank, node, message.process)]:
                waiting.remove(worker)
                self._next_turn(attempt, worker)
            if not waiting:
                del attempt.waiting[index]

    def kept(self, node: Node, message: SnapshotKept) -> None:
        attempt = self.attempts[message.attempt_number]
        self.memory.kept([worker for worker in attempt.workers if worker.node is node], message)

    def dump_stacks(self, node: Node, attempt_number: int) -> None:
        """The stacks name the rank that hangs, another rank, or none; or they never come."""
        luck = self._rng.random()
        if luck < 0.2:
            return
        texts: dict[int, str] = {}
        nobody = self.attempt is None or not any(worker.stuck for worker in self.attempt.workers)
        for worker in self.on(node):
            waits = not worker.stuck if nobody or luck < 0.7 else self._rng.random() < 0.5
            texts[worker.rank] = f"{_ENTRY}{'all_reduce' if waits else 'step'}\n"
        self._clock.after(self._rng.random() * 2.5, self.say, node, wire.Stacks(attempt_number, texts))

    # What becomes of them

    def vanish(self, worker: Worker) -> None:
        """The worker is lost with its node, without a message."""
        if worker.lives:
            worker.is_silent, worker.status = True, Status.DEAD

    def fail_of_peers(self, node: Node) -> None:
        """Workers on other nodes notice that their peers are lost, often before the driver does."""
        assert self.attempt is not None
        for worker in self.attempt.workers:
            if worker.lives and worker.node is not node and self._rng.random() < 0.7:
                self._die(self.attempt, worker, self._rng.choice(OF_PEERS))

    def _say(self, worker: Worker, message: wire.Message) -> None:
        if worker.is_silent:
            return
        if isinstance(message, wire.Reports):
            worker.told = worker.reports
        latency = (3.0 if self._rng.random() < 0.05 else 0.1) * self._rng.random()
        worker.heard_until = max(worker.heard_until, worker.node.cut_until, self._clock.now + latency)
        if worker.heard_until < math.inf:
            self._clock.at(worker.heard_until, self.say, worker.node, message)

    def _say_reports(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        """Reports without files are sent together, with the next message. A rank never ends without sending them."""
        if worker.unsent:
            reports, worker.unsent = worker.unsent, []
            self._say(worker, wire.Reports(attempt.attempt_number, worker.rank, reports, worker.process))

    def _enter(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if not worker.lives or worker.stuck:
            return
        if self._faults.hit("start-up hang"):
            self._faults.count("start-up hang")
            worker.stuck = True
            return
        if self._faults.hit("start-up death"):
            self._faults.count("start-up death")
            self._die(attempt, worker, Death(exit_code=1))
            return
        worker.status = Status.TRAINING
        self._say(worker, wire.WorkerIsReady(attempt.attempt_number, worker.rank, worker.process))
        if worker.notice_waits:
            self._notice(attempt, worker)
        self._next_turn(attempt, worker)

    def _next_turn(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        delay = self._workload.pace[worker.rank] * (0.5 + self._rng.random())
        self._clock.after(delay, self._turn, attempt, worker)

    def _turn(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        """One step of the train function: a fault, a report, or the return."""
        if not worker.lives or worker.stuck or self._meets_a_fault(attempt, worker):
            return
        number = attempt.base + worker.reports + worker.steps + 1
        if number > self._workload.totals[worker.rank]:
            self._return(attempt, worker)
        elif worker.never_reports:
            self._faults.count("a rank was silent")
            worker.steps += 1
            self._next_turn(attempt, worker)
        elif worker.noticed and worker.handover_at is None:
            worker.is_parked = True
        elif self._waits_for_storage(worker, number):
            self._next_turn(attempt, worker)
        elif self._report(attempt, worker, number):
            self._keep_in_memory(attempt, worker)
            self._next_turn(attempt, worker)

    def _return(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        self._say_reports(attempt, worker)
        worker.status = Status.RETURNED
        self._say(worker, wire.WorkerHasReturned(attempt.attempt_number, worker.rank, b"", worker.process))
        self._say_gone_if_so(attempt, worker.node)

    def _keep_in_memory(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if self.takes_snapshots:
            self._say_reports(attempt, worker)
            self.memory.completed(attempt, worker)

    def _waits_for_storage(self, worker: Worker, number: int) -> bool:
        return worker.node.stalled and self._workload.has_files(worker.rank, number)

    def _report(self, attempt: SimulatedAttempt, worker: Worker, number: int) -> bool:
        """Whether the worker continues after it."""
        index = worker.reports
        worker.reports += 1
        self.reported(attempt.attempt_number, number)
        line = report_line(index, self._workload.score(number))
        if not self._workload.has_files(worker.rank, number):
            worker.unsent.append(Report(index, line))
            if self._rng.random() < 0.7:
                self._say_reports(attempt, worker)
            return True
        if index not in attempt.staged and self._faults.hit("gather failure"):
            attempt.clashing.add(index)
        attempt.staged.setdefault(index, set()).add(worker.rank)
        if index in attempt.clashing and 0 in attempt.staged[index] and len(attempt.staged[index]) == 2:
            self._faults.count("gather failure")
        if not worker.is_silent or worker.is_logged:
            attempt.files.setdefault(index, set()).add(worker.rank)
        urgent, name = self._workload.is_urgent(number), self._workload.name(number)
        validation = VALIDATION if self._workload.validates(number) else b""
        worker.unsent.append(Report(index, line, True, name, validation, urgent))
        self._say_reports(attempt, worker)
        if worker.handover_at is not None and index >= worker.handover_at:
            self._faults.count("a worker waited at a hand-over")
            worker.waits_at = index
            return False
        if urgent:
            attempt.waiting.setdefault(index, []).append(worker)
            self._requests += 1
            request = WorkerRequest(self._requests, "durable", b"", worker.reports)
            self._say(worker, wire.Asked(attempt.attempt_number, worker.rank, request, worker.process))
        return not urgent

    def _meets_a_fault(self, attempt: SimulatedAttempt, worker: Worker) -> bool:
        self.disturb_nodes(worker)
        if not worker.lives:
            return True
        if not self._may_fail and self._bugs == 0:
            return worker.stuck
        is_bad = attempt.base + worker.reports + 1 == self._workload.bug_at
        if is_bad and self._bugs == 0 and self._faults.hit("bug at one report"):
            self._bugs = self._workload.bug_times
        if is_bad and self._bugs > 0:
            self._faults.count("bug at one report")
            self._bugs -= 1
            self._die(attempt, worker, Death("KeyError: step"))
        elif self._faults.hit("worker crash"):
            self._faults.count("worker crash")
            self._die(attempt, worker, Death(signal=9, oom=self._rng.random() < 0.3))
        elif self._faults.hit("worker exception"):
            self._faults.count("worker exception")
            self._die(attempt, worker, Death("ValueError: bad"))
        elif self._faults.hit("several workers at once"):
            self._faults.count("several workers at once")
            for other in attempt.workers:
                if other is worker or (other.lives and self._rng.random() < 0.7):
                    self._die(attempt, other, Death(signal=9))
        elif self._faults.hit("hang"):
            # Without a hang timeout the machine need not notice a hang.
            if self.hang_is_watched(all(w.never_reports or w.told >= 3 for w in attempt.workers if w.lives)):
                self._faults.count("hang")
                worker.stuck = True
        elif self._faults.hit("SIGSTOP"):
            self._faults.count("SIGSTOP")
            self._freeze(attempt, worker)
        return not worker.lives or worker.stuck

    def _freeze(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        worker.stuck = worker.frozen = True
        self._say(worker, wire.WorkerIsStopped(attempt.attempt_number, worker.rank, True, worker.process))
        if not self.stop_is_watched() or self._rng.random() < 0.6:
            self._clock.after(self._rng.random() * 4.0, self._thaw, attempt, worker)

    def _thaw(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if worker.lives:
            worker.stuck = worker.frozen = False
            self._say(worker, wire.WorkerIsStopped(attempt.attempt_number, worker.rank, False, worker.process))
            if worker.notice_waits:
                self._notice(attempt, worker)
            self._turn(attempt, worker)

    def _die(self, attempt: SimulatedAttempt, worker: Worker, death: Death) -> None:
        self._say_reports(attempt, worker)
        started = worker.status is not Status.STARTING
        worker.status = Status.DEAD
        kind, _, text = death.raised.partition(": ")
        raised = Raised(0.0, kind, text, "", b"", started) if death.raised else None
        how = (death.exit_code, death.signal, started, death.oom, list[str](), worker.process)
        self._say(worker, wire.WorkerHasFailed(attempt.attempt_number, worker.rank, raised, *how))
        self._say_gone_if_so(attempt, worker.node)

    def _kill(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if not worker.lives:
            return
        if self._rng.random() < 0.5:
            self._die(attempt, worker, Death(signal=15))
        else:
            self._say_reports(attempt, worker)
            worker.status = Status.DEAD
            self._say_gone_if_so(attempt, worker.node)

    def _say_gone_if_so(self, attempt: SimulatedAttempt, node: Node) -> None:
        if not any(worker.lives for worker in attempt.processes if worker.node is node):
            self._say_gone(node, attempt.attempt_number)

    def _say_gone(self, node: Node, attempt_number: int) -> None:
        attempt = self.attempts.get(attempt_number)
        there = [worker for worker in attempt.processes if worker.node is node] if attempt is not None else []
        when = max([self._clock.now, node.cut_until, *(worker.heard_until for worker in there)])
        if when < math.inf:
            self._clock.at(
                when + self._rng.random() * 0.2,
                self.say,
                node,
                wire.WorkersGone(attempt_number, node.orders[attempt_number]),
            )
