"""Which answers of nodes count."""

from __future__ import annotations

from holdfast.core.run.placement import WorkerNeeds
from holdfast.core.run.staged_files import ON_NODES
from holdfast.driver.effects import Effect, Send
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.outbox import Outbox
from holdfast.wire import messages as wire


def test_an_answer_about_staged_files_is_none_about_the_files_in_storage() -> None:
    """The second question followed because another node had answered the first; that it is gone may be heard late."""
    effects: list[Effect] = []
    nodes = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", 1))
    outbox = Outbox(nodes, effects.append, ON_NODES)
    for node in ("a", "b"):
        nodes.ready(wire.NodeReady(node, 1, 2.0))
    outbox.fetch("best", b"{}", stored=False)
    outbox.fetch("best", b"{}", stored=True)
    asked = [(e.node, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, wire.Fetch)]
    assert [(node, order.stored) for node, order in asked] == [("a", False), ("b", False), ("a", True), ("b", True)]
    staged, stored = asked[0][1].number, asked[2][1].number
    assert not outbox.take_fetched("b", "best", staged, failed=True)
    assert not outbox.take_fetched("b", "best", stored, failed=False), "a has not answered yet"
    assert outbox.take_fetched("a", "best", stored, failed=False)
    assert not outbox.take_fetched("a", "best", stored, failed=False), "it is decided"
