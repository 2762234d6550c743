"""Agents without processes. The driver's messages reach them late or never, and they answer as real agents do.

A node that is cut off keeps running. Messages from it and to it wait until the connection is back, or are lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import cloudpickle

from holdfast.store.manifests import parse_manifest_line
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import (
    CheckpointCommitted,
    HandoverAt,
    Notice,
    PeersLost,
    Pressure,
    Reply,
    SnapshotKept,
)

from .clock import Clock
from .schedule import Faults, Workload
from .simulated_attempt import Machine, Node, SimulatedAttempt, files_of, logged
from .simulated_storage import PATIENCE_S, SimulatedStorage
from .simulated_workers import Workers

_SCORES = (None, 0.5, 3.0, math.nan)
_FOUND = [cloudpickle.dumps({} if score is None else {"score": score}) for score in _SCORES]


class Agents:
    def __init__(
        self,
        clock: Clock,
        rng: Random,
        faults: Faults,
        workload: Workload,
        workers: Workers,
        storage: SimulatedStorage,
        is_remote: bool,
    ) -> None:
        """``is_remote``: each node holds the files that its own workers staged."""
        self.nodes: dict[str, Node] = {}  # that can receive messages, by id
        self._met: dict[str, Node] = {}  # and those that were lost
        self.deliver: Callable[[tuple[str, wire.Message]], None]
        self.replace: Callable[[Node], None]  # lets another node join in its place
        self._clock, self._rng, self._faults, self._workload = clock, rng, faults, workload
        self._workers, self._storage, self._is_remote = workers, storage, is_remote
        self._attempts = workers.attempts
        workers.say = self.say
        workers.memory.say_for, workers.memory.nodes = self.say, self.nodes

    # The line

    def say(self, node: Node, message: wire.Message) -> None:
        """Send to the driver. Messages that a node sent before it was lost still arrive."""
        self.deliver((node.id, message))

    def _answer(self, node: Node, after_s: float, answer: Callable[..., wire.Message | None], *args: Any) -> None:
        self._clock.after(self._rng.random() * after_s, self._say_answer, node, answer, *args)

    def _say_answer(self, node: Node, answer: Callable[..., wire.Message | None], *args: Any) -> None:
        if not node.lives or node.cut_until == math.inf:
            return
        if node.cut_until > self._clock.now:
            self._clock.at(node.cut_until, self._say_answer, node, answer, *args)
            return
        message = answer(node, *args)
        if message is not None:
            self.say(node, message)

    def send(self, id: str, message: wire.Message) -> None:
        """From the driver."""
        node = self.nodes.get(id)
        if node is None:
            if isinstance(message, wire.StartWorkers):  # they would have arrived
                self._workers.start(self._met[id], message, is_reached=False)
            return
        is_reached = node.lives and node.cut_until < math.inf
        if isinstance(message, wire.StartWorkers):
            self._workers.start(node, message, is_reached)
        elif is_reached and node.cut_until > self._clock.now:
            self._clock.at(node.cut_until, self._obey_if_alive, node, message)
        elif is_reached:
            _OBEY[type(message)](self, node, message)

    def _obey_if_alive(self, node: Node, message: wire.Message) -> None:
        if node.lives and self.nodes.get(node.id) is node:
            _OBEY[type(message)](self, node, message)

    def ready(self, node: Node) -> wire.NodeReady:
        """The messages of a node that has just started."""
        node.is_known = True
        self.nodes[node.id] = self._met[node.id] = node
        machine = node.machine
        left = self._left(machine) if self._is_remote else []
        unsaved = [machine.unsaved[id] for id in sorted(machine.unsaved)] if self._is_remote else []
        leased = "" if math.isinf(node.room) else machine.name
        return wire.NodeReady(node.id, 1, node.room, unsaved, left, machine=leased)

    def _left(self, machine: Machine) -> list[wire.LeftReports]:
        there = {g.attempt_number for g in self._attempts.values() if any(w.node.machine is machine for w in g.workers)}
        last = max(there, default=0)
        if last <= machine.swept:
            return []
        attempt, left = self._attempts[last], []
        for worker in attempt.workers:
            if worker.node.machine is machine:
                reports = attempt.log_of(worker, self._workload)
                lost = [index for index in reports.staged if attempt.lacks_shard(worker, index)]
                left.append(wire.LeftReports(last, worker.rank, logged(reports), lost))
        return left

    # Checkpoints

    def _seal(self, node: Node, order: wire.Seal) -> None:
        self._answer(node, 5.0 if self._rng.random() < 0.1 else 0.3, self._sealed, order)

    def _sealed(self, node: Node, order: wire.Seal) -> wire.Message:
        return wire.NodeNews([self._sealed_of(order, rank) for rank in order.ranks])

    def _sealed_of(self, order: wire.Seal, rank: int) -> wire.Sealed:
        """The agent outlives its workers, so it does not matter whether they have exited."""
        where = (order.attempt_number, rank, order.index)
        attempt = self._attempts[order.attempt_number]
        vanished = order.index in attempt.discarded and self._rng.random() < 0.5
        if vanished or self._faults.hit("seal failure"):
            if not vanished:
                self._faults.count("seal failure")
            attempt.unsealable.add(order.index)
            return wire.Sealed(*where, [], "no space is left")
        attempt.sealed.add((rank, order.index))
        return wire.Sealed(*where, files_of(attempt, rank, order.index))

    def _gather(self, node: Node, order: wire.Gather) -> None:
        """This only renames. A node that has done a part of it already finds the files again."""
        attempt, index, machine = self._attempts[order.attempt_number], order.index, node.machine
        if index in attempt.lost or (order.id not in machine.gathered and self._lose_by_chance(attempt, index)):
            self._answer(node, 0.5, self._staged_lost, order.id)
            return
        ranks = [rank for rank, _ in order.parts]
        machine.gathered[order.id] = (order.attempt_number, index, ranks)
        machine.unsaved[order.id] = order.manifest
        attempt.gathered.add(index)

    def _upload(self, node: Node, order: wire.Upload) -> None:
        """Each node at its own pace."""
        pace = self._workload.upload_s
        if self._faults.hit("slow upload"):
            self._faults.count("slow upload")
            pace = 60.0
        attempt = self._attempts[order.attempt_number]
        if order.id not in node.machine.gathered or self._lose_by_chance(attempt, order.index):
            self._answer(node, pace, self._staged_lost, order.id)
            return
        failed = self._faults.hit("upload failure")
        if failed:
            self._faults.count("upload failure")
        if failed or self._storage.go_away_by_chance():
            self._clock.after(PATIENCE_S, self._answer, node, pace, self._not_uploaded, order)
        else:
            self._answer(node, pace, self._uploaded, order)

    def _not_uploaded(self, _node: Node, order: wire.Upload) -> wire.Message:
        return wire.Uploaded(order.attempt_number, order.index, order.ranks, "storage is away")

    def _uploaded(self, node: Node, order: wire.Upload) -> wire.Message | None:
        attempt = self._attempts[order.attempt_number]
        if order.index in attempt.lost or order.id not in node.machine.gathered:
            return self._staged_lost(node, order.id)
        for rank in node.machine.gathered[order.id][2]:
            self._storage.put(order.id, order.attempt_number, rank)
        return wire.Uploaded(order.attempt_number, order.index, order.ranks)

    def _fetch(self, node: Node, order: wire.Fetch) -> None:
        if self._faults.hit("storage away when a checkpoint is read"):
            self._faults.count("storage away when a checkpoint is read")
            self._clock.after(
                PATIENCE_S,
                self._answer,
                node,
                1.0,
                lambda *_: wire.Fetched(order.id, "it is away", number=order.number),
            )
            return
        self._answer(node, 2.0, self._fetched, order)

    def _fetched(self, _node: Node, order: wire.Fetch) -> wire.Message:
        id, manifest = order.id, parse_manifest_line(order.manifest)
        attempt = self._attempts[manifest.attempt_number]
        if order.stored:
            self._storage.maybe_damage()
            found = self._storage.manifests.get(id)
            bad = found.damaged if found is not None else self._storage.lacks(manifest)
            return wire.Fetched(id, "a digest differs" if bad else "", bool(bad), order.number)
        if self._lose_by_chance(attempt, manifest.index) or not attempt.has_staged(manifest.index):
            return wire.Fetched(id, "it is gone", True, order.number)
        if self._rng.random() < 0.2:
            self._faults.count("staged files were lost when they were verified")
            attempt.lost.add(manifest.index)
            return wire.Fetched(id, "a file is gone", True, order.number)
        return wire.Fetched(id, number=order.number)

    def _staged_lost(self, _node: Node, id: str) -> wire.Message:
        return wire.StagedLost(id, "its files are gone")

    def _lose_by_chance(self, attempt: SimulatedAttempt, index: int) -> bool:
        if index not in attempt.lost and self._faults.hit("staged lost"):
            self._faults.count("staged lost")
            attempt.lost.add(index)
        return index in attempt.lost

    def _durable(self, node: Node, message: CheckpointCommitted) -> None:
        """Files that are in storage may be removed: the node may need the space."""
        node.machine.unsaved.pop(message.id, None)
        if message.id in node.machine.gathered and self._rng.random() < 0.5:
            self._attempts[message.attempt_number].lost.add(message.index)

    def _forget(self, node: Node, order: wire.Forget) -> None:
        if order.attempt_number in self._attempts:
            self._attempts[order.attempt_number].discarded.add(order.index)
        node.machine.unsaved.pop(order.id, None)
        node.machine.gathered.pop(order.id, None)

    def _sweep(self, node: Node, order: wire.Sweep) -> None:
        """Logs of attempts up to that one are no longer needed."""
        node.machine.swept = max(node.machine.swept, order.attempt_number)
        for attempt in self._attempts.values():
            for worker in attempt.workers if attempt.attempt_number <= order.attempt_number else ():
                worker.log_is_lost = worker.log_is_lost or worker.node.machine is node.machine

    def lose(self, machine: Machine) -> None:
        """The node is lost, with all files that its workers staged."""
        for attempt in self._attempts.values():
            for index, ranks in attempt.staged.items() if self._is_remote else ():
                if any(attempt.workers[rank].node.machine is machine for rank in ranks):
                    attempt.lost.add(index)
            for worker in attempt.workers:
                worker.log_is_lost = worker.log_is_lost or worker.node.machine is machine
        machine.unsaved.clear()
        machine.gathered.clear()
        machine.swept = max(self._attempts, default=0)

    def _recalled(self, node: Node, order: wire.Recall) -> wire.Message:
        return self._workers.memory.recall(node, order)

    # Beside the training

    def _run_task(self, node: Node, order: wire.RunTask) -> None:
        self._answer(node, 4.0, self._task_done, order)

    def _task_done(self, _node: Node, order: wire.RunTask) -> wire.Message:
        luck = self._rng.random()
        if luck < 0.6:
            return wire.TaskDone(order.task, self._rng.choice(_FOUND))
        return wire.TaskDone(order.task, b"", "it failed", timed_out=luck < 0.8)

    def _probe(self, node: Node, _order: wire.Probe) -> None:
        if self._faults.hit("node not fit to train on"):
            self._faults.count("node not fit to train on")
            self._answer(node, 5.0, lambda *_: wire.Probed(False, ["a disk is full"]))
            self.replace(node)

    def _open_door(self, node: Node, order: wire.OpenDoor) -> None:
        if not self._faults.is_planned("node cannot talk to others"):
            return  # to test the others too would only cost time
        self._answer(node, 2.0, lambda *_: wire.DoorOpen(order.meeting, 1, node.id.encode()))

    def _meet(self, node: Node, order: wire.Meet) -> None:
        host = self.nodes.get(order.token.decode())
        apart = node.is_mute or (host is not None and host.is_mute)
        self._answer(node, 2.0, lambda *_: wire.Met(order.meeting, "no route" if apart else ""))

    def _press(self, node: Node, message: Pressure) -> None:
        if message.on:
            self._faults.count("workers waited for storage")
        node.stalled = message.on


_OBEY: dict[type[wire.Message], Callable[[Agents, Node, Any], None]] = {
    wire.StopWorkers: lambda agents, node, order: agents._workers.stop(node, order),
    wire.Seal: Agents._seal,
    wire.Gather: Agents._gather,
    wire.Upload: Agents._upload,
    wire.Fetch: Agents._fetch,
    wire.Forget: Agents._forget,
    wire.Sweep: Agents._sweep,
    wire.RunTask: Agents._run_task,
    wire.DumpStacks: lambda agents, node, order: agents._workers.dump_stacks(node, order.attempt_number),
    wire.Probe: Agents._probe,
    wire.OpenDoor: Agents._open_door,
    wire.Meet: Agents._meet,
    CheckpointCommitted: Agents._durable,
    Pressure: Agents._press,
    Notice: lambda agents, node, message: agents._workers.notice(node, message),
    HandoverAt: lambda agents, node, message: agents._workers.hand_over_at(node, message),
    wire.OpenStore: lambda agents, node, order: agents._workers.memory.open_store(node, order),
    wire.Replicate: lambda agents, node, order: agents._workers.memory.replicate(node, order),
    wire.Recall: lambda agents, node, order: agents._answer(node, 1.0, agents._recalled, order),
    SnapshotKept: lambda agents, node, message: agents._workers.kept(node, message),
    Reply: lambda agents, node, message: agents._workers.hear_reply(node, message),
    **dict.fromkeys(
        (PeersLost, wire.StartStandby, wire.PromoteStandby, wire.EndRank),
        lambda agents, node, order: agents._workers.obey_live(node, order),
    ),
}
