"""Snapshots in the memory of nodes without any memory: who has written and copied which step, and what is left of it.

A worker keeps its state after each report, two steps in turn; it overwrites an earlier one only when the driver has
said that the one after it is complete on all ranks. What nodes have goes with them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from holdfast.core.run.memory import SHARED, piece_of, pieces_of
from holdfast.core.run.state import Snapshot
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import SnapshotKept

from .clock import Clock
from .schedule import Faults, Schedule
from .simulated_attempt import Node, SimulatedAttempt, Worker

_DAMAGED = 0.05


class SimulatedMemory:
    def __init__(self, clock: Clock, faults: Faults, schedule: Schedule) -> None:
        self.say: Callable[[Worker, wire.Message], None]  # behind all that the worker said before
        self.say_for: Callable[[Node, wire.Message], None]
        self.nodes: dict[str, Node] = {}  # that can be reached, by id
        self.written: dict[tuple[int, int, int], int] = {}  # (attempt, rank, step) -> reports made before
        self.lacking: list[str] = []  # what workers did not find
        self._clock, self._faults, self._schedule = clock, faults, schedule
        self._rng = Random(repr(schedule))

    @property
    def is_used(self) -> bool:
        return self._schedule.snapshots

    # What workers and their agents do

    def completed(self, attempt: SimulatedAttempt, worker: Worker) -> None:
        """The worker has made a step."""
        if worker.kept < worker.written or self._rng.random() < 0.1:
            return
        worker.written = step = attempt.base + worker.reports
        attempt_number, rank, node = attempt.attempt_number, worker.rank, worker.node
        self.written[attempt_number, rank, step] = worker.reports
        first = min(w.rank for w in attempt.workers if w.node is node) == rank
        pieces = [piece_of(rank), *([SHARED] if first else [])]
        for piece in pieces:
            _write(node, piece, attempt_number, step)
        if self._rng.random() < 0.05:
            return  # it was cut off, or the agent had no time
        held = wire.SnapshotHeld(
            attempt_number, rank, step, worker.reports, self._schedule.moves, pieces, [], not node.replicate.to
        )
        self.say(worker, held)
        if node.replicate.to:
            self._clock.after(self._rng.random() * 0.5, self._copy, worker, held, node.replicate)

    def _copy(self, worker: Worker, held: wire.SnapshotHeld, order: wire.Replicate) -> None:
        copies = []
        for store in order.to:
            peer = self.nodes.get(store.node)
            if not worker.node.lives or peer is None or not peer.lives or self._rng.random() < 0.05:
                continue
            for piece in held.pieces:
                if piece != SHARED or order.shared:
                    _write(peer, piece, held.attempt_number, held.step, of=worker.node.id)
            copies.append(peer.id)
        done = wire.SnapshotHeld(
            held.attempt_number, held.rank, held.step, held.reports, held.moves, held.pieces, copies, True
        )
        self.say(worker, done)

    def kept(self, workers: list[Worker], message: SnapshotKept) -> None:
        for worker in workers:
            worker.kept = max(worker.kept, message.step)

    # What the driver asks of nodes

    def open_store(self, node: Node, _order: wire.OpenStore) -> None:
        self._clock.after(self._rng.random(), self.say_for, node, wire.StoreOpen(1, b""))

    def replicate(self, node: Node, order: wire.Replicate) -> None:
        node.replicate = order

    def recall(self, node: Node, order: wire.Recall) -> wire.Message:
        moved = False
        for piece in order.pieces:
            where = (piece, order.attempt_number, order.step)
            if where in node.pieces and self._rng.random() < _DAMAGED:
                self._faults.count("a snapshot was damaged")
                del node.pieces[where]
            if where in node.pieces:
                continue
            moved = True
            peers = [self.nodes.get(store.node) for store in order.sources.get(piece, ())]
            if not any(peer is not None and peer.lives and where in peer.pieces for peer in peers):
                return wire.Recalled(order.attempt_number, order.step, error=f"{node.id} lacks {piece}")
            _write(node, piece, order.attempt_number, order.step, of="fetched")
        return wire.Recalled(order.attempt_number, order.step, moved)

    def starts(self, node: Node, order: wire.StartWorkers) -> None:
        """Workers find what they resume from."""
        if order.snapshot is None:
            return
        attempt_number, step = order.snapshot
        snapshot = Snapshot(attempt_number, step, 0, order.taken_by)
        wanted = pieces_of(snapshot, (place.rank for place in order.places), order.world_size)
        lacking = [piece for piece in wanted if (piece, attempt_number, step) not in node.pieces]
        self.lacking += [f"{piece} of {order} on {node.id}" for piece in lacking]


def _write(node: Node, piece: str, attempt_number: int, step: int, of: str = "") -> None:
    """Into one of the two buffers of whoever brings it: the newer one stays."""
    earlier = sorted((g, s) for (name, g, s), owner in node.pieces.items() if name == piece and owner == of)
    for g, s in earlier[:-1]:
        del node.pieces[piece, g, s]
    node.pieces[piece, attempt_number, step] = of
