"""Which nodes an attempt may be on, how many of its workers fit on each, and what they get there."""

from __future__ import annotations

import math

import pytest

from holdfast.core.run.placement import (
    KnownNode,
    WorkerNeeds,
    capacity_of,
    devices,
    distribute,
    room_left,
    roomiest,
    standby_node,
    usable,
)

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


def test_packing_fills_the_largest_node_first_and_spreading_goes_around() -> None:
    nodes = [KnownNode("small", 1.0, 0.0, ""), KnownNode("large", 4.0, 0.0, ""), KnownNode("middle", 2.0, 0.0, "")]
    packed = [(found.id, count) for found, count in distribute(nodes, 5, NEEDS)]
    assert packed == [("large", 4), ("middle", 1)], "a node without workers is left out"
    spread = [(found.id, count) for found, count in distribute(nodes, 5, NEEDS._replace(strategy="SPREAD"))]
    assert spread == [("small", 1), ("large", 2), ("middle", 2)]


@pytest.mark.parametrize(
    ("cpus", "gpus", "fits"),
    [
        (0.1, 0.0, 80),  # ten tenths are one, whatever binary fractions say
        (3.0, 0.0, 2),
        (0.0, 0.0, math.inf),
        (1.0, 1.0, 4),
        (1.0, 1.5, 2),  # two devices each
        (1.0, 0.25, 8),  # four share a device, but there are eight CPUs only
        (0.0, 0.4, 8),  # a share is of one device: two fit on each
    ],
)
def test_how_many_workers_fit_on_a_node(cpus: float, gpus: float, fits: float) -> None:
    assert capacity_of(KnownNode("a", 8.0, 4.0, ""), NEEDS._replace(cpus=cpus, gpus=gpus)) == fits


def test_what_a_cluster_has_granted_counts_and_nothing_else() -> None:
    seats = [["gpu-7"], ["gpu-3"], ["gpu-7"]]
    granted = KnownNode("a", 64.0, 8.0, "", seats)
    assert capacity_of(granted, NEEDS) == 3
    assert devices(granted, 3, NEEDS) == ("gpu-7,gpu-3", [[0], [1], [0]])


def test_workers_get_whole_devices_or_share_one() -> None:
    here = KnownNode("a", 8.0, 4.0, "")
    assert devices(here, 2, NEEDS._replace(gpus=2.0)) == ("", [[0, 1], [2, 3]])
    assert devices(here, 4, NEEDS._replace(gpus=0.5)) == ("", [[0], [0], [1], [1]])
    assert devices(here, 2, NEEDS) == ("", [[], []])


def test_a_standby_waits_where_it_stands_for_the_most_ranks() -> None:
    assert standby_node(["a", "b", "b"], []) == "b"
    assert standby_node(["a", "b", "b"], ["b", "b"]) == "a"
    assert standby_node([], []) is None


def test_a_rank_moves_to_the_node_with_the_most_room() -> None:
    nodes = [KnownNode("a", 2.0, 0.0, ""), KnownNode("b", 4.0, 0.0, ""), KnownNode("full", 1.0, 0.0, "")]
    free = room_left(nodes, {"a": 1, "b": 1, "full": 1}, NEEDS)
    assert free == {"a": 1, "b": 3}
    assert roomiest(free) == "b"
    assert roomiest({}) is None
    assert room_left([KnownNode("endless", math.inf, 0.0, "")], {"gone": 2}, NEEDS) == {"endless": 2}
