"""Workers whose steps can be repeated: they train in lockstep, notice lost peers, and form their group again.

A step is a collective that all ranks of a group enter. When one rank is lost, some of the others may have completed the
step, and none can complete the next one. They ask the driver and wait. A standby has no rank until it is ordered to
take one. A process whose rank was given to another does nothing that counts.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import PeersLost, Reply, WorkerRequest

from .fates import expect
from .simulated_attempt import Death, Node, SimulatedAttempt, Status, Worker
from .simulated_workers import Workers

_TWICE = "11 no step that a survivor has completed is done again"
_ONE_OWNER = "11 a rank has one owner"
_HERE = ("127.0.0.1", 1)


class LiveWorkers(Workers):
    # Messages from agents

    def start(self, node: Node, order: wire.StartWorkers, is_reached: bool) -> None:
        if not order.joins:
            super().start(node, order, is_reached)
            return
        node.orders[order.attempt_number] += 1
        attempt, place = self.attempts[order.attempt_number], order.places[0]
        worker = Worker(place.rank, node, place.local_rank)
        self._succeed(attempt, worker, order.joins)
        if not is_reached:
            worker.is_silent, worker.status = True, Status.DEAD
        else:
            when = max(self.now, node.cut_until) + self._rng.random()
            self._clock.at(when, self._enter, attempt, worker)

    def obey_live(self, node: Node, order: wire.Message) -> None:
        match order:
            case wire.StartStandby():
                self._start_standby(node, order)
            case wire.PromoteStandby():
                self._promote(node, order)
            case wire.EndRank(attempt_number, rank):
                self._end_rank(node, attempt_number, rank)
            case PeersLost():
                self._peers_lost(node, order)

    def _start_standby(self, node: Node, order: wire.StartStandby) -> None:
        node.orders[order.attempt_number] += 1
        attempt = self.attempts[order.attempt_number]
        worker = Worker(-1, node, 0)
        worker.is_logged, worker.standby = self._are_logged, order.number
        attempt.others.append(worker)
        self._clock.after(self._rng.random() * 2.0, self._stand_by, attempt, worker)

    def _stand_by(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if not worker.lives:
            return
        if self._faults.hit("standby killed"):
            self._faults.count("standby killed")
            self._die(attempt, worker, Death(signal=9))
            return
        worker.status = Status.TRAINING
        self._say(worker, wire.StandbyIsReady(attempt.attempt_number, worker.standby))
        self._clock.after(self._rng.random() * 4.0, self._wait_for_a_rank, attempt, worker)

    def _wait_for_a_rank(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if worker.lives and worker.standby and self._faults.hit("standby killed"):
            self._faults.count("standby killed")
            self._die(attempt, worker, Death(signal=9))

    def _promote(self, node: Node, order: wire.PromoteStandby) -> None:
        """If the standby has exited, the driver knows it already."""
        attempt = self.attempts[order.attempt_number]
        self._end_rank(node, order.attempt_number, order.place.rank)
        for worker in attempt.others:
            if worker.node is node and worker.standby == order.number and worker.lives:
                worker.rank, worker.local_rank, worker.standby = order.place.rank, order.place.local_rank, 0
                self._succeed(attempt, worker, order.joins)
                self._say(worker, wire.WorkerIsReady(attempt.attempt_number, worker.rank, worker.process))
                self._next_turn(attempt, worker)
                return

    def _end_rank(self, node: Node, attempt_number: int, rank: int) -> None:
        attempt = self.attempts[attempt_number]
        for worker in attempt.processes:
            if worker.node is node and worker.rank == rank and worker.lives:
                self._end(attempt, worker)

    def _succeed(self, attempt: SimulatedAttempt, worker: Worker, joins: int) -> None:
        """The standby takes the rank. On the same node, nothing is left of the process that had the rank."""
        before = attempt.workers[worker.rank]
        if before.node is worker.node:
            self._end(attempt, before)
            worker.heard_until = max(worker.heard_until, before.heard_until)
        attempt.others = [*(other for other in attempt.others if other is not worker), before]
        attempt.workers[worker.rank] = worker
        worker.joins, worker.process, worker.group, worker.is_logged = joins, joins, -1, self._are_logged
        worker.follow(before)

    def _end(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        """No more messages come from the process."""
        if worker.lives:
            self._say_reports(attempt, worker)
            worker.status, worker.stuck = Status.DEAD, False
            self._peer_is_gone(attempt, worker)

    def _peers_lost(self, node: Node, message: PeersLost) -> None:
        attempt = self.attempts[message.attempt_number]
        for worker in attempt.processes:
            if worker.node is node and worker.rank >= 0 and worker.group < message.number:
                self._clock.after(self._rng.random() * 0.1, self._lose_group, attempt, worker, worker.group)

    # The group

    def _peer_is_gone(self, attempt: SimulatedAttempt, gone: Worker) -> None:
        """A lost process's connections close, so ranks that wait for it in a collective usually wake up."""
        if gone.group < 0:
            return
        for worker in attempt.processes:
            if worker is not gone and worker.lives and worker.group == gone.group and self._rng.random() < 0.9:
                self._clock.after(0.01 + self._rng.random() * 0.2, self._lose_group, attempt, worker, gone.group)

    def _lose_group(self, attempt: SimulatedAttempt, worker: Worker, group: int) -> None:
        if worker.lives and worker.group == group:
            worker.has_lost_peers = True
            if worker.entered is not None and not worker.stuck and not worker.meets:
                self._ask(attempt, worker)

    def _ask(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        """The rank leaves its group, which the others notice, and waits for all ranks."""
        worker.meets, worker.entered = True, None
        if not worker.joins:
            self._peer_is_gone(attempt, worker)
        worker.group = -1
        self._requests += 1
        worker.request = self._requests
        steps = -1 if worker.joins else attempt.base + worker.done
        body = {"steps": steps, "joins": worker.joins > 0, "endpoint": _HERE if worker.joins else None}
        request = WorkerRequest(worker.request, "regroup", cloudpickle.dumps(body), worker.reports)
        self._say(worker, wire.Asked(attempt.attempt_number, worker.rank, request, worker.process))
        self._maybe_strike(attempt)

    def hear_reply(self, node: Node, message: Reply) -> None:
        attempt = self.attempts[message.attempt_number]
        for worker in attempt.processes:
            if worker.node is node and worker.request == message.request and worker.rank == message.rank:
                if worker.meets and worker.lives:
                    answer = cloudpickle.loads(message.body)
                    self._clock.after(self._rng.random() * 0.1, self._join, attempt, worker, answer)
                return
        super().hear_reply(node, message)

    def _join(self, attempt: SimulatedAttempt, worker: Worker, answer: dict[str, Any]) -> None:
        if not worker.lives or not worker.meets:
            return
        worker.group, worker.has_lost_peers, worker.answer = answer["number"], False, answer
        self._maybe_strike(attempt)
        self._clock.after(self._rng.random() * 0.2, self._form, attempt, worker, 0)

    def _form(self, attempt: SimulatedAttempt, worker: Worker, tries: int) -> None:
        """Connect to all other ranks and take the state of the one that is ahead, within a time limit."""
        answer = worker.answer
        if not worker.lives or answer is None or worker.group != answer["number"]:
            return
        others = [other for other in attempt.workers if other is not worker]
        missing = [o for o in others if o.formed < worker.group and (not o.lives or o.group != worker.group)]
        if worker.stuck or (missing and not worker.has_lost_peers and tries < 40):
            self._clock.after(0.25, self._form, attempt, worker, tries + 1)
        elif missing or worker.has_lost_peers:
            worker.has_lost_peers, worker.answer = False, None
            self._ask(attempt, worker)
        else:
            self._formed(attempt, worker, answer)

    def _formed(self, attempt: SimulatedAttempt, worker: Worker, answer: dict[str, Any]) -> None:
        worker.meets, worker.answer, worker.formed = False, None, answer["number"]
        if answer["snapshot"] is None or answer["snapshot"][1] < worker.written:
            worker.written = worker.kept  # it will never be complete
        worker.complete = answer["snapshot"]
        owners = [w for w in attempt.processes if w.lives and w.rank == worker.rank and w.formed >= answer["number"]]
        expect(owners == [worker], _ONE_OWNER, f"rank {worker.rank} of attempt {attempt.attempt_number}")
        steps, rank = answer["steps"][answer["source"]] - attempt.base, worker.rank
        if rank in answer["replaced"]:
            expect(worker.joins > 0, _ONE_OWNER, f"rank {rank} was replaced, and a survivor is told so")
            begun = [other.done for other in attempt.workers if other is not worker and not other.joins]
            expect(not begun or steps >= max(begun) - 1, _TWICE, f"rank {rank} begins at {steps} beside {begun}")
            worker.begin(steps, answer["reports"], answer["made"][rank])
            self._faults.count("a rank was replaced alone")
            self._next_turn(attempt, worker)
            return
        expect(not worker.joins, _ONE_OWNER, f"a replacement of rank {rank} is taken for a survivor")
        expect(0 <= steps - worker.done <= 1, _TWICE, f"rank {rank} goes from step {worker.done} to {steps}")
        if steps > worker.done:
            self._faults.count("a survivor took the step that others had completed")
            self._completed(attempt, worker)
        else:
            self._next_turn(attempt, worker)

    # Steps

    def _turn(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        if not worker.lives or worker.stuck or worker.meets or worker.rank < 0:
            return
        if not worker.joins and worker.entered is None and self._meets_a_fault(attempt, worker):
            return
        if worker.joins:
            self._ask(attempt, worker)
            return
        if not worker.armed and len(attempt.workers) > 1:
            worker.armed = True
            self._say(worker, wire.WorkerIsArmed(attempt.attempt_number, worker.rank, worker.process))
        if worker.has_report:
            self._tell(attempt, worker)
        elif attempt.base + worker.done >= self._workload.totals[0]:
            self._return(attempt, worker)
        elif worker.has_lost_peers and worker.armed:
            self._ask(attempt, worker)
        else:
            worker.entered = worker.done
            self._say_reports(attempt, worker)
            self._reduce(attempt, worker)

    def _reduce(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        peers = attempt.workers
        if any(not peer.lives or peer.group != worker.group for peer in peers):
            self._clock.after(0.05 + self._rng.random() * 0.5, self._lose_group, attempt, worker, worker.group)
            return
        if not all(peer.entered == worker.entered and not peer.stuck for peer in peers):
            return
        slow = 1.0 if self._rng.random() < 0.5 else 0.1
        for peer in peers:
            self._clock.after(self._rng.random() * slow, self._complete, attempt, peer, peer.group, peer.done)

    def _complete(self, attempt: SimulatedAttempt, worker: Worker, group: int, step: int) -> None:
        """The rank completes the step. If a peer was lost, it may or may not have received everything that it needs."""
        if not worker.lives or worker.meets or (worker.group, worker.entered, worker.done) != (group, step, step):
            return
        if self._kill_in_a_collective(attempt, worker):
            return
        if worker.stuck:
            self._clock.after(0.5, self._complete, attempt, worker, group, step)
        elif not worker.has_lost_peers or self._rng.random() < 0.5:
            self._completed(attempt, worker)
        else:
            self._ask(attempt, worker)

    def _completed(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        worker.done += 1
        worker.entered, worker.has_report = None, True
        self._clock.after(self._workload.pace[0] * self._rng.random(), self._turn, attempt, worker)

    def _tell(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        number = attempt.base + worker.reports + 1
        if worker.noticed and worker.handover_at is None:
            worker.is_parked = True
            return
        if self._waits_for_storage(worker, number):
            self._next_turn(attempt, worker)
            return
        worker.has_report = False
        if worker.reports < worker.told_before:
            worker.reports += 1  # the lost rank had made this report
            self._next_turn(attempt, worker)
        elif self._report(attempt, worker, number) and not self._kill_in_a_collective(attempt, worker):
            self._keep_in_memory(attempt, worker)
            self._next_turn(attempt, worker)

    def _report(self, attempt: SimulatedAttempt, worker: Worker, number: int) -> bool:
        """Reported again after a move, because a node that no longer has the rank does not report for it."""
        gone = [w for w in attempt.others if w.rank == worker.rank and w.node is worker.node and not w.is_silent]
        before = [w for w in gone if w.told > worker.reports]
        expect(not before, "11 a report is made once", f"rank {worker.rank} makes report {worker.reports} again")
        return super()._report(attempt, worker, number)

    # What becomes of them

    def _die(self, attempt: SimulatedAttempt, worker: Worker, death: Death) -> None:
        if not worker.standby:
            super()._die(attempt, worker, death)
            self._peer_is_gone(attempt, worker)
            return
        worker.status = Status.DEAD
        self._say(worker, wire.StandbyHasEnded(attempt.attempt_number, worker.standby, "it was killed"))
        self._say_gone_if_so(attempt, worker.node)

    def vanish(self, worker: Worker) -> None:
        super().vanish(worker)
        if self.attempt is not None and worker in self.attempt.processes:
            self._peer_is_gone(self.attempt, worker)

    def fail_of_peers(self, node: Node) -> None:
        """The peers notice the loss in their next collective, and wait."""

    def _kill_in_a_collective(self, attempt: SimulatedAttempt, worker: Worker) -> bool:
        """Kill a worker before it completes the step, or when it has completed it and the others have not."""
        is_hit = self._faults.hit("worker killed in a collective")
        if is_hit:
            self._faults.count("worker killed in a collective")
            self._die(attempt, worker, Death(signal=9))
        return is_hit

    def _maybe_strike(self, attempt: SimulatedAttempt) -> None:
        """While ranks are being replaced, any process may be hit."""
        living = [worker for worker in attempt.processes if worker.lives]
        for kind in ("worker killed while ranks are replaced", "node lost while ranks are replaced"):
            if living and self._faults.hit(kind):
                self._faults.count(kind)
                victim = self._rng.choice(living)
                if kind.startswith("node"):
                    self.lose_node(victim.node)
                else:
                    self._clock.after(self._rng.random() * 0.3, self._strike, attempt, victim)
