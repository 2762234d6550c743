"""One run on this node: its driver's orders, its processes and its files. Runs of one agent share everything else."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from holdfast.node import node_lease, peer_check, probe, stack_collection
from holdfast.node.driver_connection import RunConnection
from holdfast.node.node_snapshots import NodeSnapshots
from holdfast.node.process_pool import ProcessPool
from holdfast.node.storage_orders import StorageOrders, StorageThreads
from holdfast.node.worker_processes import WorkerProcesses
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import (
    CheckpointCommitted,
    GoOn,
    HandoverAt,
    Notice,
    PeersLost,
    Pressure,
    Reply,
    SnapshotKept,
)


@dataclass(frozen=True)
class AgentParts:
    """What the runs of an agent share."""

    pool: ProcessPool
    selector: selectors.BaseSelector
    hands: StorageThreads
    post: Callable[[wire.Message], None]  # queues a message from another thread than the loop
    wake: Callable[[], None]  # makes the loop check which runs are closing
    mind: Callable[[NodeRun], None]  # the run may have a deadline: ask it until it has none


class NodeRun:
    def __init__(self, session: wire.Configure, line: RunConnection, shared: AgentParts) -> None:
        self._line, self._shared = line, shared
        self._storage = StorageOrders(session, shared.hands, self._answer, shared.wake)
        self._snapshots = NodeSnapshots(session.node_id, self._storage.submit_snapshot, self._answer)
        where = (shared.pool, shared.selector, line, self._storage.submit)
        deadline, taken = (lambda: shared.mind(self)), self._snapshots.taken
        self.workers = WorkerProcesses(session, self._storage.layout, *where, deadline, taken)
        shared.mind(self)
        self._over: bool | None = None  # the order to close it
        self._wound_up = False
        self._node_id = session.node_id

    def say_ready(self, leased: bool, clear: bool) -> None:
        left = self._storage.left()  # first: it moves the files of an interrupted gathering back
        ready = wire.NodeReady(self._node_id, os.getpid(), os.cpu_count() or 1, self._storage.unsaved(), left)
        if leased:
            ready = structs.replace(ready, machine=node_lease.machine(), clear=clear)
        self._line.say(ready)

    def obey(self, order: wire.RunOrder) -> None:
        match order:
            case wire.StartWorkers():
                offer, memory = self._storage.resume_from(order.checkpoint), self._snapshots.memory(order)
                self.workers.start_attempt(order, offer, memory)
            case wire.StartStandby():
                self.workers.start_standby(order, self._snapshots.memory(None))
            case wire.PromoteStandby():
                offer, memory = self._storage.resume_from(order.checkpoint), self._snapshots.memory(None)
                self.workers.promote(order, offer, memory)
            case wire.EndRank(attempt_number, rank):
                self.workers.end_rank(attempt_number, rank)
            case wire.StopWorkers():
                self.workers.stop_attempt(order)
            case wire.Seal() | wire.Gather() | wire.Upload() | wire.Fetch() | wire.Forget() | wire.Sweep():
                self._storage.serve(order)
            case wire.OpenStore() | wire.Replicate() | wire.Recall():
                self._snapshots.serve(order)
            case wire.RunTask():
                self.workers.run_task(order)
            case Reply():
                self.workers.tell(order, order.attempt_number, order.rank, order.process)
            case GoOn():
                self.workers.tell(order, order.attempt_number, order.rank)
            case CheckpointCommitted(attempt_number, id):
                self._storage.mark_durable(id)
                self.workers.tell(structs.replace(order, offer=self._storage.offer(id)), attempt_number)
            case Pressure():
                self.workers.press(order)
            case Notice() | HandoverAt() | PeersLost() | SnapshotKept():
                self.workers.tell(order, order.attempt_number)
            case wire.DumpStacks(attempt_number):
                subjects = self.workers.subjects(attempt_number)
                self._beside(lambda: wire.Stacks(attempt_number, stack_collection.collect(subjects)))
            case wire.Probe():
                self._beside(self._probe)
            case wire.OpenDoor(meeting, address):
                self._beside(lambda: _open_door(meeting, address))
            case wire.Meet(meeting, address, port, token):
                self._beside(lambda: wire.Met(meeting, peer_check.meet(address, port, token)))

    def due(self) -> float | None:
        workers, storage = self.workers.due(), self._storage.due()
        return workers if storage is None or (workers is not None and workers < storage) else storage

    def on_time(self, now: float) -> None:
        self.workers.on_time(now)
        self._storage.on_time(now)

    # Its end, while others continue

    def close_soon(self, over: bool) -> None:
        if self._over is None:
            self._over = over
            self.workers.end_all()
            self._storage.close_soon(over)

    def close_further(self) -> bool:
        """Take the next step to close a run. Returns whether it is closed completely."""
        if not self.workers.is_empty or not self._storage.is_idle:
            return False
        if self._over and not self._wound_up:
            self._wound_up = True
            self._storage.wind_up()
        if self._storage.is_idle:
            self._snapshots.close()
        return self._storage.is_idle

    # Its end with the agent

    def end_storage(self, over: bool) -> None:
        self._storage.close(over)
        self._snapshots.close()

    # In other threads

    def _beside(self, work: Callable[[], wire.RunNews]) -> None:
        """Run it in a separate thread: the other threads may be busy for a long time."""
        threading.Thread(target=lambda: self._answer(work()), name="holdfast-aside", daemon=True).start()

    def _answer(self, message: wire.RunNews) -> None:
        self._shared.post(self._line.envelope(message))

    def _probe(self) -> wire.Probed:
        findings = probe.findings(self._storage.layout.root)
        return wire.Probed(not findings, findings)


def _open_door(meeting: int, address: str) -> wire.DoorOpen:
    try:
        door = peer_check.open_door(address)
    except OSError as error:
        return wire.DoorOpen(meeting, 0, b"", f"it cannot listen at {address}: {error}")
    return wire.DoorOpen(meeting, door.port, door.token)
