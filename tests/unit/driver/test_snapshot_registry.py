"""What the driver knows of states in the memory of nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.run import events as ev
from holdfast.core.run import memory
from holdfast.core.run.placement import WorkerNeeds
from holdfast.core.run.run_spec import RunSpec
from holdfast.core.run.state import Attempt, Durable, Phase, Rank, Ranks, RunState, Snapshot
from holdfast.driver import effects as fx
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.outbox import Outbox
from holdfast.driver.snapshot_registry import SnapshotRegistry
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import SnapshotKept


def test_the_answer_to_an_earlier_recall_does_not_count_for_the_next() -> None:
    """Seed 19034 of the simulator: a node left while it was recalled for two workers, and the other one, asked again
    for all of the state, had answered the first question."""
    sent: list[fx.Effect] = []
    nodes = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", 1))
    for node in ("n1", "n2"):
        nodes.ready(wire.NodeReady(node, 1, 1.0))
    registry = SnapshotRegistry(nodes, Outbox(nodes, sent.append), replicas=1)
    registry.recall(Snapshot(1, 1, 1, world_size=2), world_size=2)
    nodes.lost("n2")
    registry.recall(Snapshot(1, 1, 1, world_size=2), world_size=1)
    asked = [one.message for one in sent if isinstance(one, fx.Send) and one.node == "n1"]
    first, second = (order.number for order in asked if isinstance(order, wire.Recall))
    assert list(registry.hear("n1", wire.Recalled(1, 1, number=first), RunState())) == []
    assert list(registry.hear("n1", wire.Recalled(1, 1, number=second), RunState())) == [ev.Recalled(1, 1, False)]


def test_what_was_not_complete_when_ranks_were_replaced_never_will_be() -> None:
    """The replacement continues behind that step, and takes no snapshot of it."""
    nodes = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", 1))
    nodes.ready(wire.NodeReady("n1", 1, 2.0))
    registry = SnapshotRegistry(nodes, Outbox(nodes, lambda _effect: None), replicas=1)
    run = RunState(Durable(attempt_number=1), Attempt(Ranks([Rank(), Rank()]), 0.0), Phase.RUNNING)

    def held(rank: int, step: int) -> list[ev.Event]:
        said = wire.SnapshotHeld(1, rank, step, 0, True, [f"rank-{rank}"], [], True)
        return list(registry.hear("n1", said, run))

    assert [*held(0, 4), *held(1, 4)] == [ev.SnapshotTaken(Snapshot(1, 4, 0, 2))]
    assert held(0, 5) == []
    assert registry.regrouped(5) == (1, 4)
    assert held(1, 5) == [], "said before it was lost, and heard behind"
    assert held(0, 5) == []
    assert [*held(0, 6), *held(1, 6)] == [ev.SnapshotTaken(Snapshot(1, 6, 0, 2))]


class Registry:
    """Of a run with a rank on each of some nodes; what was sent to them is noted."""

    def __init__(self, *nodes: str, ranks: int = 0, replicas: int = 1) -> None:
        self.sent: list[tuple[str, wire.Message]] = []
        self.nodes = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", 1))
        for node in nodes:
            self.nodes.ready(wire.NodeReady(node, 1, 1.0))
        self.registry = SnapshotRegistry(self.nodes, Outbox(self.nodes, self._send), replicas)
        ranks = ranks or len(nodes)
        self.run = RunState(Durable(attempt_number=1), Attempt(Ranks([Rank()] * ranks), 0.0), Phase.RUNNING)

    def _send(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Send):
            self.sent.append((effect.node, effect.message))

    def held(self, node: str, rank: int, step: int, **said: Any) -> list[ev.Event]:
        pieces = [memory.SHARED, f"rank-{rank}"]
        reports, copies = said.pop("reports", 0), said.pop("copies", [])
        message = wire.SnapshotHeld(1, rank, step, reports, True, pieces, copies, True, **said)
        return list(self.registry.hear(node, message, self.run))

    def opened(self, node: str, port: int = 1) -> None:
        assert list(self.registry.hear(node, wire.StoreOpen(port, b"token"), self.run)) == []

    def taken(self, kind: type[wire.Message]) -> list[Any]:
        """What was sent of this kind since the last call: the node and the message."""
        found = [one for one in self.sent if isinstance(one[1], kind)]
        self.sent.clear()
        return found

    def orders(self) -> dict[str, tuple[list[str], bool, int]]:
        found = self.taken(wire.Replicate)
        return {node: ([peer.node for peer in order.to], order.shared, order.number) for node, order in found}


def test_a_snapshot_without_its_copies_is_not_kept() -> None:
    """The nodes learn where copies go when the first snapshots have been taken; these are copied then, too."""
    run = Registry("n1", "n2")
    for rank, node in enumerate(("n1", "n2")):
        run.held(node, rank, 1)
    assert run.taken(SnapshotKept) == []
    run.opened("n1")
    assert run.orders() == {}, "n2 may take copies, or not"
    run.opened("n2")
    orders = run.orders()
    assert {node: (to, shared) for node, (to, shared, _) in orders.items()} == {
        "n1": (["n2"], False),
        "n2": (["n1"], False),
    }
    run.held("n1", 0, 1, copies=["n2"], order=orders["n1"][2])
    assert run.taken(SnapshotKept) == []
    run.held("n2", 1, 1, copies=["n1"], order=orders["n2"][2])
    assert {node for node, _ in run.taken(SnapshotKept)} == {"n1", "n2"}


def test_nodes_that_cannot_take_copies_hold_nobody_up() -> None:
    run = Registry("n1", "n2")
    run.held("n1", 0, 1)
    run.opened("n1", port=0)
    run.opened("n2", port=0)
    orders = run.orders()
    assert {node: to for node, (to, *_) in orders.items()} == {"n1": [], "n2": []}
    for rank, node in enumerate(("n1", "n2")):
        run.held(node, rank, 1, order=orders[node][2])
    assert run.taken(SnapshotKept)


def test_what_is_the_same_on_all_ranks_is_copied_while_one_node_alone_has_written_it() -> None:
    run = Registry("n1", "n2", "n3", ranks=1)
    run.held("n1", 0, 1)
    for node in ("n1", "n2"):
        run.opened(node)
    run.nodes.lost("n3")
    assert list(run.registry.node_lost("n3", run.run)) == []
    first = run.orders()
    assert first["n1"] == (["n2"], True, first["n1"][2])
    run.held("n1", 0, 1, copies=["n2"], order=first["n1"][2])
    run.nodes.ready(wire.NodeReady("n0", 1, 1.0))
    run.registry.node_ready("n0", run.run)
    run.opened("n0")
    assert all(shared for _, shared, _ in run.orders().values()), "copies are not what a worker there has written"
    run.nodes.lost("n1")
    assert list(run.registry.node_lost("n1", run.run)) == []


def test_a_snapshot_moves_if_what_each_rank_has_of_its_own_is_the_same() -> None:
    for digests, moves in (((b"a", b"a"), True), ((b"a", b"b"), False)):
        run = Registry("n1", ranks=2)
        run.held("n1", 0, 1, alike=digests[0])
        assert run.held("n1", 1, 1, alike=digests[1]) == [ev.SnapshotTaken(Snapshot(1, 1, 0, 2, moves))]


def test_nodes_that_fetched_a_snapshot_have_it_from_then_on() -> None:
    """The node that it came from may be lost before there is a newer one."""
    run = Registry("n1", "n2", ranks=1)
    taken = run.held("n1", 0, 1)
    newest = Snapshot(1, 1, 0, 1)
    assert taken == [ev.SnapshotTaken(newest)]
    run.registry.recall(newest, 2)
    for node, order in run.taken(wire.Recall):
        list(run.registry.hear(node, wire.Recalled(1, 1, node == "n2", number=order.number), run.run))
    run.nodes.lost("n1")
    known = RunState(Durable(attempt_number=1), run.run.attempt, Phase.RUNNING, snapshot=newest)
    assert list(run.registry.node_lost("n1", known)) == []


def test_a_snapshot_that_a_rank_skips_is_given_up() -> None:
    run = Registry("n1", ranks=2)
    assert run.held("n1", 0, 1) == []
    assert run.held("n1", 1, 1) == [ev.SnapshotTaken(Snapshot(1, 1, 0, 2))]
    run.taken(SnapshotKept)
    run.held("n1", 0, 2)
    skipped = wire.SnapshotHeld(1, 1, 2, 0, True, [], [], True)
    for _ in range(2):
        assert list(run.registry.hear("n1", skipped, run.run)) == []
    assert [message for _, message in run.taken(SnapshotKept)] == [SnapshotKept(1, 2, True, (1, 1))], "once"
    assert run.held("n1", 0, 2) == []
    assert [*run.held("n1", 0, 3), *run.held("n1", 1, 3)] == [ev.SnapshotTaken(Snapshot(1, 3, 0, 2))]


def test_with_rank_zero_only_the_reports_of_rank_0_count() -> None:
    """The others make none."""
    run = Registry("n1", ranks=2)
    run.run = msgspec.structs.replace(run.run, durable=Durable(RunSpec(rank_zero_only=True), attempt_number=1))
    assert run.held("n1", 0, 1, reports=3) == []
    assert run.held("n1", 1, 1, reports=0) == [ev.SnapshotTaken(Snapshot(1, 1, 3, 2))]
    assert len(run.taken(SnapshotKept)) == 1


def test_when_a_rank_takes_no_more_the_others_are_told_why() -> None:
    """Once, and again those that do not know it yet."""
    run = Registry("n1", ranks=2)
    assert [*run.held("n1", 0, 1), *run.held("n1", 1, 1)] == [ev.SnapshotTaken(Snapshot(1, 1, 0, 2))]
    run.taken(SnapshotKept)
    ends = [wire.SnapshotHeld(1, rank, 2, 0, True, [], [], True, why_ended="no space left") for rank in (1, 0)]
    assert [event for end in ends for event in run.registry.hear("n1", end, run.run)] == []
    kept = SnapshotKept(1, 2, True, (1, 1), "rank 1: no space left")
    assert [message for _, message in run.taken(SnapshotKept)] == [kept]
    for rank in (0, 1):
        assert run.held("n1", rank, 3) == []
    assert [message for _, message in run.taken(SnapshotKept)] == [SnapshotKept(1, 3, True, (1, 1), kept.why_ended)]
