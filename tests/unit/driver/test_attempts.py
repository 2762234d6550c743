"""Where an attempt starts, and that it does not where there is no room for it."""

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
        site = Site(grows, False, False, Path("run"), lambda *_: "", lambda *_: None)
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
