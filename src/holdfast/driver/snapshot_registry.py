"""Records which nodes have which pieces of which snapshots in memory, and which copies are in progress. It decides
nothing: ``core/run/memory`` decides which snapshot an attempt resumes from, and which nodes keep copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from holdfast.core.run import events as ev
from holdfast.core.run import memory
from holdfast.core.run.state import RunState, Snapshot
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Place, SnapshotKept

from .node_registry import NodeRegistry
from .outbox import Outbox

_NOBODY = ""
_KNOWN_STEPS = 1000  # reports whose step is remembered


@dataclass
class _Taken:
    """One step of an attempt, as far as ranks have saved it."""

    moves: bool
    alike: set[bytes] = field(default_factory=set)  # digests of what must be the same on all ranks if it moves
    reports: dict[int, int] = field(default_factory=dict)  # by rank
    homes: dict[str, set[str]] = field(default_factory=dict)  # nodes by piece
    final: set[int] = field(default_factory=set)  # ranks for which no further copies will be made
    snapshot: Snapshot | None = None  # when it is complete
    made: Counter[int] = field(default_factory=Counter)  # how many ranks made so many reports before it

    def note(self, rank: int, reports: int, rank_zero_only: bool) -> None:
        """With ``rank_zero_only``, the other ranks make no reports, so only its own count says anything."""
        before = self.reports.get(rank)
        if before != reports:
            self.reports[rank] = reports
            if rank == 0 or not rank_zero_only:
                self.made.subtract([] if before is None else [before])
                self.made = +self.made
                self.made[reports] += 1

    def is_on(self, nodes: Collection[str]) -> bool:
        there = set(nodes)
        return all(not homes.isdisjoint(there) for homes in self.homes.values())


@dataclass
class _Recall:
    snapshot: Snapshot
    world_size: int
    asked: dict[str, set[str]]  # pieces by node
    waiting: set[str]
    moved: bool = False


class SnapshotRegistry:
    def __init__(self, nodes: NodeRegistry, outbox: Outbox, replicas: int) -> None:
        self._nodes, self._outbox, self._replicas = nodes, outbox, replicas
        self._taken: dict[tuple[int, int], _Taken] = {}  # by attempt and step
        self._stores: dict[str, wire.PeerStore] = {}  # by node
        self._answered: set[str] = set()  # nodes that were asked to open one, and have or cannot
        self._told: dict[str, wire.Replicate] = {}  # where each node was told to send copies; number 0: not yet
        self._orders = 0  # to send copies
        self._writers: set[str] = set()  # nodes whose workers have written what is the same on all ranks
        self._recall: _Recall | None = None
        self._recalls = 0  # how many recalls there were: a second one of the same snapshot may follow, for other places
        self._steps: dict[int, int] = {}  # the last step that was known to be complete before a report of the run
        self._newest = -1  # step that any rank has completed
        self._given_up = -1  # snapshots up to this step that were incomplete when ranks were replaced stay so
        self._why_ended = ""  # the attempt takes no more, because a rank does not

    # Messages of nodes

    def hear(
        self, node: str, message: wire.SnapshotHeld | wire.StoreOpen | wire.Recalled, state: RunState
    ) -> Iterator[ev.Event]:
        if node not in self._nodes.ids:
            return  # it has been lost with its content meanwhile
        match message:
            case wire.SnapshotHeld():
                yield from self._hear_held(node, message, state)
            case wire.StoreOpen(port, token):
                self._answered.add(node)
                if port:
                    self._stores[node] = wire.PeerStore(node, self._nodes.address(node), port, token)
                self._arrange()
            case wire.Recalled():
                yield from self._hear_recalled(node, message)

    def _hear_held(self, node: str, message: wire.SnapshotHeld, state: RunState) -> Iterator[ev.Event]:
        if message.attempt_number != state.attempt_number or state.attempt is None:
            return
        which = (message.attempt_number, message.step)
        if message.why_ended or self._why_ended:
            self._end(message)
            return
        if which not in self._taken and message.step <= self._given_up:
            return
        if not message.pieces:
            self._give_up(message)
            return
        self._open_stores()
        self._note_writer(node, message.pieces)
        taken = self._taken.setdefault(which, _Taken(message.moves))
        taken.note(message.rank, message.reports, state.spec.rank_zero_only)
        taken.moves = taken.moves and message.moves
        taken.alike.add(message.alike)
        order = self._told.get(node)
        has_shared = order is not None and order.shared and order.number == message.order
        for piece in message.pieces:
            homes = taken.homes.setdefault(piece, set())
            homes.add(node)
            if piece != memory.SHARED or has_shared:
                homes.update(copy for copy in message.copies if copy in self._nodes.ids)
        if message.final and (message.order or order is None):  # else the node brings copies when it knows where
            taken.final.add(message.rank)
        self._newest = max(self._newest, message.step)
        world_size = len(state.ranks)
        if len(taken.reports) < world_size or len(taken.made) > 1:
            return
        if taken.snapshot is None:
            report = state.base + taken.reports[0]
            self._steps[report] = message.step
            for old in list(self._steps)[:-_KNOWN_STEPS]:
                del self._steps[old]
            taken.snapshot = Snapshot(*which, report, world_size, taken.moves and len(taken.alike) == 1)
            yield ev.SnapshotTaken(taken.snapshot)
        if len(taken.final) == world_size:
            self._drop_before(message.attempt_number, message.step)
            self._outbox.tell(SnapshotKept(message.attempt_number, message.step))

    def _give_up(self, message: wire.SnapshotHeld) -> None:
        """A rank does not take this one: those that do must not wait for it."""
        if message.step > self._given_up:
            complete = self.regrouped(message.step)
            self._outbox.tell(SnapshotKept(message.attempt_number, message.step, True, complete))

    def _end(self, message: wire.SnapshotHeld) -> None:
        """A rank takes no more, so no later one can be complete: the others must not wait for it. A replaced rank may
        take one all the same, because it has not heard that."""
        is_new = not self._why_ended
        if is_new:
            self._why_ended = f"rank {message.rank}: {message.why_ended}"
        if is_new or (message.pieces and message.step > self._given_up):
            complete = self.regrouped(max(message.step, self._given_up))
            self._outbox.tell(SnapshotKept(message.attempt_number, self._given_up, True, complete, self._why_ended))

    def regrouped(self, steps: int) -> tuple[int, int] | None:
        """Replaced ranks continue after that step and take no snapshot of earlier steps. Returns the newest complete
        snapshot, by attempt and step; its memory stays."""
        self._taken = {key: taken for key, taken in self._taken.items() if taken.snapshot is not None}
        self._given_up = steps
        return max(self._taken, default=None)

    def _drop_before(self, attempt_number: int, step: int) -> None:
        """Their memory may be overwritten from now on."""
        self._taken = {key: taken for key, taken in self._taken.items() if key >= (attempt_number, step)}

    # Copies on other nodes

    def _open_stores(self) -> None:
        """Called when the first snapshot arrives, and for each node that joins later."""
        if self._replicas < 1 or len(self._nodes.ids) < 2:
            return
        for node in self._nodes.ids:
            if node not in self._told:
                self._told[node] = wire.Replicate([], False)
                self._outbox.send(node, wire.OpenStore(self._nodes.address(node)))

    def _note_writer(self, node: str, pieces: Sequence[str]) -> None:
        if memory.SHARED in pieces and node not in self._writers:
            self._writers.add(node)
            self._arrange()

    def _arrange(self) -> None:
        """Nothing is copied before it is known, for each node that was asked, whether it takes copies."""
        if not self._orders and not self._told.keys() <= self._answered:
            return
        nodes = [node for node in self._nodes.ids if node in self._stores]
        shared = len(self._writers) <= self._replicas
        for node in sorted(self._answered & self._told.keys()):
            peers = memory.replica_nodes(node, sorted({*nodes, node}), self._replicas)
            order, told = [self._stores[peer] for peer in peers], self._told[node]
            if (order, shared) != (told.to, told.shared) or not told.number:
                self._orders += 1
                self._told[node] = wire.Replicate(order, shared, self._orders)
                self._outbox.send(node, self._told[node])

    def node_ready(self, node: str, state: RunState) -> None:
        self._forget_node(node)  # it may be another agent of the same name
        if self._told:
            self._open_stores()
        if self._recall is not None and self._recall.waiting:
            self.recall(self._recall.snapshot, self._recall.world_size)

    def node_lost(self, node: str, state: RunState) -> Iterator[ev.Event]:
        self._forget_node(node)
        self._arrange()
        newest = state.snapshot
        if newest is not None and not self._is_there(newest):
            instead = max(
                (t.snapshot for t in self._taken.values() if self._is_usable(t, newest)), default=None, key=_age
            )
            yield ev.SnapshotLost(newest.attempt_number, newest.step, f"{node} was lost with it", instead)
        if self._recall is not None and node in self._recall.asked:
            self.recall(self._recall.snapshot, self._recall.world_size)

    def _forget_node(self, node: str) -> None:
        for taken in self._taken.values():
            for homes in taken.homes.values():
                homes.discard(node)
        self._stores.pop(node, None)
        self._told.pop(node, None)
        self._answered.discard(node)
        self._writers.discard(node)

    def _is_there(self, snapshot: Snapshot) -> bool:
        taken = self._taken.get((snapshot.attempt_number, snapshot.step))
        return taken is not None and taken.is_on(self._nodes.ids)

    def _is_usable(self, taken: _Taken, instead_of: Snapshot) -> bool:
        known = taken.snapshot
        return known is not None and _age(known) < _age(instead_of) and taken.is_on(self._nodes.ids)

    # Recovery

    def recall(self, snapshot: Snapshot, world_size: int) -> None:
        """Let each node verify and fetch what its workers in the next attempt will need."""
        taken = self._taken.get((snapshot.attempt_number, snapshot.step))
        homes = taken.homes if taken is not None else {}
        placed = self._nodes.place(world_size)
        asked = {
            node: memory.pieces_of(snapshot, (place.rank for place in places), world_size)
            for node, places in placed.items()
        }
        is_room = sum(map(len, placed.values())) >= world_size  # otherwise a node is joining
        waiting = set(asked) if is_room else {_NOBODY}
        self._recalls += 1
        self._recall = _Recall(snapshot, world_size, {node: set(p) for node, p in asked.items()}, waiting)
        if not is_room:
            return
        for node, pieces in asked.items():
            sources = {piece: self._stores_of(homes.get(piece, set()) - {node}) for piece in pieces}
            given = {piece: stores for piece, stores in sources.items() if stores}
            order = wire.Recall(snapshot.attempt_number, snapshot.step, pieces, given, self._recalls)
            self._outbox.send(node, order)

    def _stores_of(self, nodes: set[str]) -> list[wire.PeerStore]:
        return [self._stores[node] for node in sorted(nodes) if node in self._stores]

    def _hear_recalled(self, node: str, message: wire.Recalled) -> Iterator[ev.Event]:
        recall = self._recall
        which = (message.attempt_number, message.step)
        if recall is None or message.number != self._recalls or node not in recall.waiting:
            return
        if message.error:
            self._recall = None
            older = [t.snapshot for t in self._taken.values() if self._is_usable(t, recall.snapshot)]
            yield ev.SnapshotLost(*which, message.error, max(older, default=None, key=_age))
            return
        if which in self._taken:
            for piece in recall.asked[node]:
                self._taken[which].homes[piece].add(node)
        recall.waiting.discard(node)
        recall.moved = recall.moved or message.moved
        if not recall.waiting:
            yield ev.Recalled(*which, recall.moved)

    def is_in_place(self, snapshot: tuple[int, int], placed: Mapping[str, Sequence[Place]], world_size: int) -> bool:
        """Whether each node has verified what its workers need."""
        recall = self._recall
        if recall is None or recall.waiting or snapshot != (recall.snapshot.attempt_number, recall.snapshot.step):
            return False
        return all(
            set(memory.pieces_of(recall.snapshot, (place.rank for place in places), world_size))
            <= recall.asked.get(node, set())
            for node, places in placed.items()
        )

    def taken_by(self) -> int:
        """How many workers the attempt of the recalled snapshot had."""
        return 0 if self._recall is None else self._recall.snapshot.world_size

    def redone(self, event: ev.AttemptStarted) -> int:
        """How many completed steps the attempt repeats, as far as is known."""
        step = event.snapshot[1] if event.snapshot is not None else self._steps.get(event.base - 1, self._newest)
        return max(0, self._newest - step)

    def attempt_started(self, event_snapshot: tuple[int, int] | None, nodes: Set[str]) -> None:
        """On these nodes. A snapshot that it did not start from no longer belongs to the run."""
        if event_snapshot is None:
            self._taken.clear()
            self._newest, self._steps = -1, {}
        else:
            self._taken = {key: taken for key, taken in self._taken.items() if key == event_snapshot}
            self._newest = event_snapshot[1]
        self._recall, self._given_up, self._why_ended = None, -1, ""
        self._writers = set(nodes)


def _age(snapshot: Snapshot | None) -> tuple[int, int]:
    assert snapshot is not None
    return snapshot.attempt_number, snapshot.step
