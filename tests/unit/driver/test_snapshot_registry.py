"""What the driver knows of states in the memory of nodes."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run.placement import WorkerNeeds
from holdfast.core.run.state import Attempt, Durable, Phase, Rank, Ranks, RunState, Snapshot
from holdfast.driver import effects as fx
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.outbox import Outbox
from holdfast.driver.snapshot_registry import SnapshotRegistry
from holdfast.wire import messages as wire


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
