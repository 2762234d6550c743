"""Where an attempt starts, and that it does not where there is no capacity for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.run import commands as do
from holdfast.core.run.placement import WorkerNeeds
from holdfast.driver.attempts import Attempts
from holdfast.driver.effects import Effect, Send
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.outbox import Outbox
from holdfast.driver.site import Site
from holdfast.wire import messages as wire

START = do.StartAttempt(1, 3, None, 0, ())


class Given:
    def __init__(self, *, grows: bool) -> None:
        self.effects: list[Effect] = []
        self.nodes = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", 1))
        site = Site(grows, False, Path("run"), lambda *_: "", lambda *_: None)
        self.attempts = Attempts(self.nodes, Outbox(self.nodes, self.effects.append), site)

    def node(self, id: str) -> None:
        self.nodes.ready(wire.NodeReady(id, 1, 2.0))

    @property
    def started(self) -> dict[str, list[int]]:
        sent = [e for e in self.effects if isinstance(e, Send) and isinstance(e.message, wire.StartWorkers)]
        return {e.node: [place.rank for place in e.message.places] for e in sent}  # type: ignore[attr-defined]


def test_an_attempt_starts_on_nodes_that_have_room() -> None:
    given = Given(grows=True)
    given.node("a")
    given.node("b")
    assert given.attempts.start(START)
    assert given.started == {"a": [0, 1], "b": [2]}


@pytest.mark.parametrize("other", ["lost", "drained"])
def test_no_part_of_an_attempt_starts_where_there_is_no_room_for_all(other: str) -> None:
    given = Given(grows=True)
    given.node("a")
    given.node("b")
    if other == "lost":
        given.nodes.lost("b")
    else:
        given.nodes.drain("b")
    assert not given.attempts.start(START)
    assert given.started == {}
    assert given.attempts.stop(1, graceful=False), "there is nothing to wait for"


def test_where_nodes_do_not_come_and_go_an_attempt_waits_for_its_node() -> None:
    given = Given(grows=False)
    assert given.attempts.start(START)
    assert given.started == {}
    given.node("a")
    given.node("b")
    given.attempts.node_ready()
    assert given.started == {"a": [0, 1], "b": [2]}


def test_a_rank_moves_to_a_node_with_room_and_what_waits_there_ends_with_the_attempt() -> None:
    given = Given(grows=True)
    for node in ("a", "b", "c"):
        given.node(node)
    assert given.attempts.start(START)
    given.nodes.drain("b")
    assert given.attempts.free_elsewhere() == 2
    assert given.attempts.start_standby(1, 1, moves=True)
    assert given.attempts.start_standby(1, 2, moves=True)
    assert not given.attempts.start_standby(1, 3, moves=True), "there is no more room"
    given.attempts.replace(1, 2, number=1, standby=1)
    sent = [(e.node, e.message) for e in given.effects if isinstance(e, Send)]
    assert ("b", wire.EndRank(1, 2)) in sent
    promoted = [(node, m.place) for node, m in sent if isinstance(m, wire.PromoteStandby)]
    assert [(node, place.rank, place.node_rank) for node, place in promoted] == [("c", 2, 2)]
    assert given.attempts.node_of(1, 2) == "c"
    assert not given.attempts.stop(1, graceful=False)
    stopped = [e.node for e in given.effects if isinstance(e, Send) and isinstance(e.message, wire.StopWorkers)]
    assert stopped == ["a", "b", "c"]
