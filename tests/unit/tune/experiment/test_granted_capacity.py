"""What an experiment asks a cluster for, and what it gives back; and room on nodes of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from holdfast.engine.engine_interface import GrantedSeat
from holdfast.tune.experiment.capacity import PLAIN, BundlePlacement, NodeCapacity, Share
from holdfast.tune.experiment.granted_capacity import GrantedCapacity
from holdfast.wire.messages import NodeReady

ONE = [{"CPU": 1.0}]
TWO = [{"CPU": 1.0}, {"CPU": 1.0}]


class Cluster:
    """Grants what a test tells it to."""

    def __init__(self) -> None:
        self.asked: dict[str, Sequence[Mapping[str, float]]] = {}
        self.manners: list[tuple[str, Sequence[Mapping[str, str]]]] = []
        self.time = 0.0
        self.capacity = GrantedCapacity(self, lambda: self.time)

    def reserve(
        self, key: str, bundles: Sequence[Mapping[str, float]], strategy: str, labels: Sequence[Mapping[str, str]]
    ) -> None:
        self.asked[key] = bundles
        self.manners.append((strategy, labels))

    def give_back(self, key: str) -> None:
        del self.asked[key]

    def grant(self, node: str, *seats: tuple[str, int]) -> None:
        """All that there is on this node."""
        self.capacity.seat(node, [GrantedSeat([], key, bundle) for key, bundle in seats])

    def later(self, seconds: float = 10.0) -> None:
        self.time += seconds
        self.capacity.settle()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_room_is_asked_for_when_it_is_wanted_and_used_by_one_trial_after_the_other(cluster: Cluster) -> None:
    room = cluster.capacity
    assert room.place(ONE) is None
    room.expect(ONE, PLAIN, 2)
    room.settle()
    assert list(cluster.asked.values()) == [ONE] * 3
    cluster.grant("a", ("1", 0))
    shares = room.place(ONE)
    assert shares is not None
    assert list(shares) == ["a"]
    assert room.place(ONE) is None
    room.give_back(shares)
    assert list(room.place(ONE) or ()) == ["a"]


def test_what_nobody_wants_goes_back_after_a_while(cluster: Cluster) -> None:
    room = cluster.capacity
    room.place(ONE)
    room.settle()
    cluster.grant("a", ("1", 0))
    cluster.later(0.5)
    assert cluster.asked, "the next trial may be on its way"
    cluster.later()
    assert cluster.asked == {}


def test_what_a_trial_of_another_kind_waits_for_is_made_free_at_once(cluster: Cluster) -> None:
    room = cluster.capacity
    room.place(ONE)
    room.settle()
    cluster.grant("a", ("1", 0))
    assert room.place([{"CPU": 2.0}]) is None
    room.settle()
    assert list(cluster.asked.values()) == [[{"CPU": 2.0}]]


def test_trials_that_differ_are_asked_for_one_by_one(cluster: Cluster) -> None:
    room = cluster.capacity
    for bundles in (ONE, [{"CPU": 2.0}]):
        room.place(bundles)
        room.expect(bundles, PLAIN, 1 if bundles is ONE else 5)
        cluster.later()
    assert list(cluster.asked.values()) == [[{"CPU": 2.0}]]


def test_the_manner_is_passed_on(cluster: Cluster) -> None:
    placement = BundlePlacement("STRICT_SPREAD", ({"zone": "b"}, {"zone": "c"}), {"accelerator_type:A": 0.001})
    cluster.capacity.place(TWO, placement)
    cluster.capacity.settle()
    assert cluster.manners == [("STRICT_SPREAD", [{"zone": "b"}, {"zone": "c"}])]
    assert list(cluster.asked.values()) == [[{"CPU": 1.0, "accelerator_type:A": 0.001}] * 2]


def test_a_part_of_a_room_is_no_room(cluster: Cluster) -> None:
    room = cluster.capacity
    room.place(TWO)
    room.settle()
    cluster.grant("a", ("1", 0))
    assert room.place(TWO) is None
    cluster.grant("b", ("1", 1))
    assert sorted(room.place(TWO) or ()) == ["a", "b"]


def test_a_room_that_lost_a_node_goes_back_when_no_trial_has_a_part_of_it(cluster: Cluster) -> None:
    room = cluster.capacity
    room.place(TWO)
    room.settle()
    cluster.grant("a", ("1", 0))
    cluster.grant("b", ("1", 1))
    shares = room.place(TWO)
    assert shares is not None
    room.lost("b")
    room.give_back({"b": shares.pop("b")})
    assert room.lacking(shares, TWO) == ONE
    assert "1" in cluster.asked, "the trial still has a part of it"
    assert room.place(ONE) is None
    room.settle()
    assert cluster.asked["2"] == ONE
    cluster.grant("c", ("1", 1))  # the cluster has made the first one whole again
    more = room.place(ONE)
    assert more is not None
    assert list(more) == ["c"]
    room.give_back(shares)
    room.give_back(more)
    assert list(cluster.asked) == ["2"]


def test_room_on_a_node_that_will_go_is_not_used(cluster: Cluster) -> None:
    room = cluster.capacity
    room.place(ONE)
    room.settle()
    cluster.grant("a", ("1", 0))
    shares = room.place(ONE)
    assert shares is not None
    room.drain("a")
    assert room.lacking(shares, ONE) == ONE
    assert list(cluster.asked) == ["1"], "as long as the trial is there"
    room.give_back(shares)
    assert cluster.asked == {}


def test_a_trial_on_nodes_of_its_own_may_be_given_more_where_it_is() -> None:
    room = NodeCapacity()
    for node in ("a", "b"):
        room.ready(NodeReady(node, 1, 2.0))
    shares = room.place([{"CPU": 2.0}, {"CPU": 2.0}])
    assert shares is not None
    room.give_back({"a": shares["a"]})
    held = Share(dict(shares["b"].taken), list(shares["b"].seats))
    more = room.place(ONE)
    assert more is not None
    held.add(more["a"])
    assert held.taken == {"CPU": 3.0}
    assert len(held.seats) == 2
