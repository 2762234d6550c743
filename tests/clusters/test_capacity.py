"""What ``holdfast cluster check`` makes of a cluster's resources."""

from __future__ import annotations

import pytest

from holdfast.cli.cluster.check import judge
from holdfast.engine.demand import Demand
from holdfast.engine.ray import capacity
from holdfast.engine.ray.capacity import Capacity, NodeType, fits, room_in
from holdfast.engine.ray.nodes import RayNode


def node(name: str, drain_by: float | None = None, **labels: str) -> RayNode:
    return RayNode(name * 12, "10.0.0.1", labels, {"CPU": 4.0}, drain_by)


def demand(least: int, most: int) -> Demand:
    return Demand(least, most)


@pytest.mark.parametrize(
    ("asked", "has", "room"),
    [
        ({"CPU": 1}, {"CPU": 4}, 4),
        ({"CPU": 1}, {"CPU": 0.9}, 0),
        ({"CPU": 0.1}, {"CPU": 0.3}, 3),
        ({"CPU": 1, "GPU": 0.5}, {"CPU": 8, "GPU": 1}, 2),
        ({"GPU": 1}, {"CPU": 8}, 0),
        ({"CPU": 0, "fast": 2}, {"fast": 5}, 2),
    ],
)
def test_a_node_has_room_for_as_many_workers_as_its_scarcest_resource(
    asked: dict[str, float], has: dict[str, float], room: int
) -> None:
    assert room_in(has, Demand(resources=asked)) == room


def test_a_plain_label_must_be_there_and_what_says_more_is_left_to_ray() -> None:
    assert fits(node("a", zone="b"), Demand(labels=[{"zone": "b"}]))
    assert not fits(node("a"), Demand(labels=[{"zone": "b"}]))
    assert fits(node("a"), Demand(labels=[{"zone": "!b"}]))


@pytest.mark.parametrize(
    ("least", "most", "found", "words", "can_start"),
    [
        (2, 2, Capacity([(node("a"), 2, 2)], []), "room for all of them now", True),
        (1, 4, Capacity([(node("a"), 2, 2)], [NodeType("w", 2, 1, 2)]), "starts with 2, and grows", True),
        (1, 8, Capacity([(node("a"), 2, 2)], [NodeType("w", 2, 1, 2)]), "never has more than 4", True),
        (3, 4, Capacity([(node("a"), 2, 2)], [NodeType("w", 2, 1, None)]), "until the autoscaler has added", True),
        (2, 2, Capacity([(node("a"), 0, 2)], []), "until others have left", True),
        (3, 4, Capacity([(node("a"), 2, 2)], []), "room for 2 at most: add nodes", False),
        (3, 4, Capacity([(node("a"), 2, 2)], [NodeType("w", 0, 1, 9)]), "raise the maximum", False),
        (2, 2, Capacity([(node("a"), 1, 1), (node("b", 9.0), 1, 1)], []), "room for 1 at most", False),
    ],
)
def test_the_verdict_says_whether_a_run_can_start_and_how_far_it_grows(
    least: int, most: int, found: Capacity, words: str, can_start: bool
) -> None:
    verdict, fine = judge(demand(least, most), found)
    assert words in verdict
    assert fine is can_start


@pytest.mark.parametrize(
    ("wanted", "found", "words"),
    [
        (Demand(2, 4), Capacity([(node("a"), 1, 3)], []), "2 x (1 CPU). The nodes that are there have room for 3"),
        (Demand(labels=[{"zone": "b"}]), Capacity([], []), "1 x (1 CPU), on nodes with {'zone': 'b'}. "),
        (Demand(2, 2, strategy="STRICT_SPREAD"), Capacity([], []), "2 x (1 CPU), STRICT_SPREAD. "),
        (Demand(), Capacity([], [NodeType("w", 2, 0, 2)]), "with all nodes that the autoscaler may add, for 4"),
    ],
)
def test_a_run_that_waits_says_what_for(
    wanted: Demand, found: Capacity, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "capacity", lambda _: found)
    assert words in capacity.why_waiting(wanted)
