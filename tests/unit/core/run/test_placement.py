"""Which nodes an attempt may be on."""

from __future__ import annotations

import pytest

from holdfast.core.run.placement import KnownNode, WorkerNeeds, distribute, usable

NEEDS = WorkerNeeds(1.0, 0.0, "PACK", 1)


def node(id: str, **known: bool) -> KnownNode:
    return KnownNode(id, 2.0, 0.0, "", **known)  # type: ignore[arg-type]


def ids(*nodes: KnownNode, least: int = 1) -> list[str]:
    return [found.id for found in usable(nodes, NEEDS._replace(least=least))]


@pytest.mark.parametrize("why", ["draining", "unfit"])
def test_a_node_that_is_taken_away_or_unfit_is_never_used(why: str) -> None:
    assert ids(node("a", **{why: True}), node("b")) == ["b"]
    assert ids(node("a", **{why: True}), node("b"), least=4) == ["b"], "not even where the rest is not enough"
    assert ids(node("a", **{why: True})) == []


@pytest.mark.parametrize("why", ["resting", "apart"])
def test_a_node_that_failed_is_used_where_the_rest_is_not_enough(why: str) -> None:
    assert ids(node("a", **{why: True}), node("b")) == ["b"]
    assert ids(node("a", **{why: True}), node("b"), least=4) == ["a", "b"]


def test_what_does_not_fit_is_not_placed() -> None:
    nodes = [node("a"), node("b")]
    assert [(found.id, count) for found, count in distribute(nodes, 3, NEEDS)] == [("a", 2), ("b", 1)]
    assert sum(count for _, count in distribute(nodes, 5, NEEDS)) == 4
