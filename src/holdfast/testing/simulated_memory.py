"""Snapshots in the memory of nodes, without their data: who has written and copied which step, and what remains of it.

A worker keeps its state after each report, in two buffers in turn. It overwrites an earlier state only after the driver
has said that the next one is complete on all ranks. The content of a node is lost with the node.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import structs

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
        self.say: Callable[[Worker, wire.Message], None]  # sent after all earlier messages of the worker
        self.say_for: Callable[[Node, wire.Message], None]
        self.nodes: dict[str, Node] = {}  # that can be reached, by id
        self.newest: Callable[[], Snapshot | None]  # that the driver would recall
        self.written: dict[tuple[int, int, int], int] = {}  # (attempt, rank, step) -> reports made before
        self.lacking: list[str] = []  # snapshots that workers did not find
        self.overwritten: list[str] = []  # of the newest complete snapshot
        self._uncopied: dict[str, dict[int, tuple[Worker, wire.SnapshotHeld, tuple[int, int] | None]]] = {}  # by node
        self._recalls: dict[tuple[str, int, int], int] = {}  # the number of the newest that was answered
        self._clock, self._faults, self._schedule = clock, faults, schedule
        self._rng, self._other_rng = Random(repr(schedule)), Random(f"{schedule} stores")
        self.moves = schedule.moves  # another number of workers can resume from it
        self._differs = not self.moves and self._other_rng.random() < 0.5  # no, because each rank has its own state

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
        pieces = [piece_of(rank), *([SHARED] if worker.local_rank == 0 else [])]
        for piece in pieces:
            self._write(node, piece, attempt_number, step, keep=worker.complete)
        keep, worker.complete = worker.complete, None
        if self._rng.random() < 0.05:
            return  # it was cut off, or the agent had no time
        moves, alike = self.moves or self._differs, bytes([rank]) if self._differs else b""
        held = wire.SnapshotHeld(attempt_number, rank, step, worker.reports, moves, pieces, [], True, alike)
        self._hold(worker, held, keep)

    def _hold(self, worker: Worker, held: wire.SnapshotHeld, keep: tuple[int, int] | None) -> None:
        order = worker.node.replicate
        held = structs.replace(held, final=not order.to, order=order.number)
        if not order.number:
            self._uncopied.setdefault(worker.node.id, {})[worker.rank] = (worker, held, keep)
        self.say(worker, held)
        if order.to:
            self._clock.after(self._rng.random() * 0.5, self._copy, worker, held, order, keep)

    def _copy(
        self, worker: Worker, held: wire.SnapshotHeld, order: wire.Replicate, keep: tuple[int, int] | None
    ) -> None:
        copies = []
        for store in order.to:
            peer = self.nodes.get(store.node)
            if not worker.node.lives or peer is None or not peer.lives or self._rng.random() < 0.05:
                continue
            for piece in held.pieces:
                if piece != SHARED or order.shared:
                    self._write(peer, piece, held.attempt_number, held.step, worker.node.id, keep)
            copies.append(peer.id)
        self.say(worker, structs.replace(held, copies=copies, final=True))

    def kept(self, workers: list[Worker], message: SnapshotKept) -> None:
        for worker in workers:
            worker.kept = max(worker.kept, message.step)

    # The driver's requests to nodes

    def open_store(self, node: Node, _order: wire.OpenStore) -> None:
        port = 0 if self._other_rng.random() < 0.1 else 1
        self._clock.after(self._rng.random(), self.say_for, node, wire.StoreOpen(port, b""))

    def replicate(self, node: Node, order: wire.Replicate) -> None:
        node.replicate = order
        for worker, held, keep in self._uncopied.pop(node.id, {}).values():
            which = (held.attempt_number, held.step)
            if worker.node is node and node.lives and all((piece, *which) in node.pieces for piece in held.pieces):
                self._hold(worker, held, keep)

    def recall(self, node: Node, order: wire.Recall) -> wire.Message:
        moved, which = False, (order.attempt_number, order.step)
        asked = (node.id, *which)
        is_late = order.number < self._recalls.get(asked, 0)  # what a newer answer found intact stays intact
        self._recalls[asked] = max(order.number, self._recalls.get(asked, 0))
        for piece in order.pieces:
            where = (piece, order.attempt_number, order.step)
            if where in node.pieces and self._rng.random() < _DAMAGED and not is_late:
                self._faults.count("a snapshot was damaged")
                del node.pieces[where]
            if where in node.pieces:
                continue
            moved = True
            peers = [self.nodes.get(store.node) for store in order.sources.get(piece, ())]
            if not any(peer is not None and peer.lives and where in peer.pieces for peer in peers):
                return wire.Recalled(*which, error=f"{node.id} lacks {piece}", number=order.number)
            self._write(node, piece, order.attempt_number, order.step, of="fetched")
        return wire.Recalled(*which, moved, number=order.number)

    def starts(self, node: Node, order: wire.StartWorkers) -> None:
        """Workers find the state that they resume from."""
        if order.snapshot is None:
            return
        attempt_number, step = order.snapshot
        snapshot = Snapshot(attempt_number, step, 0, order.taken_by)
        wanted = pieces_of(snapshot, (place.rank for place in order.places), order.world_size)
        lacking = [piece for piece in wanted if (piece, attempt_number, step) not in node.pieces]
        self.lacking += [f"{piece} of {order} on {node.id}" for piece in lacking]

    def _write(
        self, node: Node, piece: str, attempt_number: int, step: int, of: str = "", keep: tuple[int, int] | None = None
    ) -> None:
        """Write to one of the sender's two buffers. The newer one stays, or the one that must be kept."""
        earlier = sorted((g, s) for (name, g, s), owner in node.pieces.items() if name == piece and owner == of)
        stays = keep if keep in earlier else (earlier[-1] if earlier else None)
        for which in earlier:
            if which != stays:
                self._note_overwritten(node, piece, which)
                del node.pieces[piece, which[0], which[1]]
        node.pieces[piece, attempt_number, step] = of

    def _note_overwritten(self, node: Node, piece: str, which: tuple[int, int]) -> None:
        newest = self.newest() if self.nodes.get(node.id) is node else None
        if newest is not None and which == (newest.attempt_number, newest.step):
            self.overwritten.append(f"{piece} of {newest} on {node.id}")
