"""What ``holdfast cluster check`` makes of a cluster's resources, and of what may be added to it."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace
from typing import Any

import pytest
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

from holdfast.cli.cluster.cluster_verdict import judge, worst
from holdfast.engine.demand import Demand
from holdfast.engine.ray import growth, ray_capacity
from holdfast.engine.ray.growth import Growth, NodeGroup
from holdfast.engine.ray.ray_capacity import NodeType, RayCapacity, fits, parts, room_in
from holdfast.engine.ray.ray_nodes import RayNode

HEAD = {"node:__internal_head__": 1.0}


def node(name: str, drain_by: float | None = None, *, is_head: bool = False, **labels: str) -> RayNode:
    return RayNode(name * 12, "10.0.0.1", labels, {"CPU": 4.0, **(HEAD if is_head else {})}, drain_by)


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


def test_a_node_is_for_any_worker_whose_labels_it_has() -> None:
    wanted = Demand(2, 2, labels=[{"zone": "a"}, {"zone": "b"}])
    assert fits(node("a", zone="b"), wanted)
    assert not fits(node("a", zone="c"), wanted)


def types(*kinds: NodeType, limit: int | None = None) -> RayCapacity:
    return RayCapacity([(node("a"), 2, 2)], kinds, limit)


@pytest.mark.parametrize(
    ("found", "in_time"),
    [
        (types(), 2),
        (types(NodeType("w", 2, 1, 3)), 6),
        (types(NodeType("w", 2, 1, 3), limit=2), 4),
        (types(NodeType("small", 1, 0, 5), NodeType("large", 4, 0, 2), limit=3), 9),
        (types(NodeType("other", 0, 2, 9), NodeType("w", 4, 0, 9), limit=3), 4),
        (types(NodeType("w", 2, 0, None), limit=5), 10),
        (types(NodeType("w", 2, 0, None), NodeType("v", 1, 0, None)), math.inf),
        (types(NodeType("w", 0, 0, None)), 2),
        (types(NodeType("w", None, 0, 0)), 2),
        (types(NodeType("w", None, 0, 1)), math.inf),
        (RayCapacity([(node("a", is_head=True), 2, 2), (node("b"), 1, 1)], [NodeType("w", 1, 0, 3)]), 5),
        (RayCapacity([(node("a"), 2, 2)], [], in_the_dark=True), math.inf),
    ],
)
def test_what_may_be_added_is_bounded_by_type_and_in_all(found: RayCapacity, in_time: float) -> None:
    assert found.in_time == in_time


ONE = [(node("a"), 1, 1)]
TWO = [(node("a"), 2, 2)]


@pytest.mark.parametrize(
    ("least", "most", "found", "words", "can_start"),
    [
        (2, 2, RayCapacity(TWO, []), "space for all of them now", True),
        (
            1,
            4,
            RayCapacity(TWO, [NodeType("w", 2, 1, 2)]),
            "starts with 2, and grows as nodes join or others leave.$",
            True,
        ),
        (1, 8, RayCapacity(TWO, [NodeType("w", 2, 1, 2)]), "never has more than 4", True),
        (3, 4, RayCapacity(TWO, [NodeType("w", 2, 1, None)]), "until the autoscaler has added", True),
        (3, 9, RayCapacity(TWO, [NodeType("w", 2, 1, 3)]), r"\(space now: 2\)\. It never has more than 6\.$", True),
        (2, 2, RayCapacity([(node("a"), 0, 2)], []), r"until others have left \(free now: 0 of 2", True),
        (
            2,
            2,
            RayCapacity([(node("a"), 0, 2)], [NodeType("w", 2, 1, 2)]),
            "others have left, or nodes are added",
            True,
        ),
        (3, 4, RayCapacity(TWO, []), "space for 2 at most: add nodes", False),
        (3, 4, RayCapacity(TWO, [NodeType("w", 0, 1, 9)]), "raise the maximum", False),
        (3, 4, RayCapacity(TWO, [NodeType("w", 2, 0, 9)], 1), "space for 2 at most: raise the maximum", False),
        (2, 2, RayCapacity([*ONE, (node("b", 9.0), 1, 1)], []), "space for 1 at most", False),
        (4, 8, RayCapacity(ONE, [], in_the_dark=True), "space for 1 now. If there is an autoscaler, .*--config", True),
        (1, 8, RayCapacity(ONE, [], in_the_dark=True), "starts with 1, and grows .*--config", True),
        (1, 1, RayCapacity(ONE, [], in_the_dark=True), "space for all of them now.$", True),
        (4, 8, RayCapacity(ONE, [NodeType("w", None, 0, 9)]), "does not say what resources a node type has", True),
    ],
)
def test_the_verdict_says_whether_a_run_can_start_and_how_far_it_grows(
    least: int, most: int, found: RayCapacity, words: str, can_start: bool
) -> None:
    verdict = judge(Demand(least, most), found)
    assert verdict.can_start is can_start
    assert re.search(words, verdict.text), verdict.text


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for a cluster of nodes with so many CPUs, all free, and labels."""

    def make(*nodes: tuple[float, dict[str, str]], grows: bool = False) -> None:
        there = {
            str(number): RayNode(str(number), f"10.0.0.{number}", labels, {"CPU": cpus}, None)
            for number, (cpus, labels) in enumerate(nodes)
        }
        left = {id: one.resources for id, one in there.items()}
        state = SimpleNamespace(available_resources_per_node=lambda: left)
        private = SimpleNamespace(_private=SimpleNamespace(state=SimpleNamespace(state=state)))
        monkeypatch.setattr(ray_capacity, "connected_ray", lambda: private)
        monkeypatch.setattr(ray_capacity, "look", lambda: there)
        monkeypatch.setattr(ray_capacity, "known_growth", lambda: None)
        monkeypatch.setattr(ray_capacity, "seems_to_grow", lambda: grows)

    return make


def verdict_of(wanted: Demand, added: Growth | None = None) -> tuple[bool, str]:
    each = parts(wanted)
    verdict = worst(judge(part, ray_capacity.capacity(part, added)) for part in each)
    return verdict.can_start, verdict.text


def test_workers_that_must_be_apart_need_a_node_each(cluster: Any) -> None:
    cluster((4, {}), (4, {}))
    apart = Demand(3, 3, strategy="STRICT_SPREAD")
    assert verdict_of(apart) == (
        False,
        "The run asks for 3 workers on nodes of their own, and the cluster has space for 2 at most: add nodes, "
        "or ask for fewer.",
    )
    assert verdict_of(apart, Growth([NodeGroup("w", {"CPU": 9.0}, 0, 3)]))[0]
    assert not verdict_of(apart, Growth([NodeGroup("w", {"CPU": 9.0}, 0, 9)], 2))[0]
    assert verdict_of(Demand(3, 3, strategy="SPREAD"))[0]


def test_workers_that_must_be_together_need_a_node_with_room_for_all(cluster: Any) -> None:
    cluster((2, {}), (2, {}))
    together = Demand(3, 3, strategy="STRICT_PACK")
    assert verdict_of(together) == (
        False,
        "The run asks for 3 workers on one node, and the cluster has space for 2 on one node at most: take larger "
        "nodes, or ask for fewer.",
    )
    assert not verdict_of(together, Growth([NodeGroup("w", {"CPU": 2.0}, 0, 9)]))[0]
    assert "until the autoscaler has added" in verdict_of(together, Growth([NodeGroup("w", {"CPU": 3.0}, 0, 1)]))[1]
    assert not verdict_of(together, Growth([NodeGroup("w", {"CPU": 3.0}, 0, 0)]))[0]
    assert (
        "starts with 4"
        in verdict_of(Demand(2, 5, strategy="STRICT_PACK"), Growth([NodeGroup("w", {"CPU": 3.0}, 0, 2)]))[1]
    )
    assert verdict_of(Demand(3, 3))[0]


def test_each_worker_needs_a_node_with_its_own_labels(cluster: Any) -> None:
    cluster((4, {"zone": "a"}))
    wanted = Demand(2, 2, labels=[{"zone": "a"}, {"zone": "b"}])
    can_start, text = verdict_of(wanted)
    assert not can_start
    assert "1 worker with {'zone': 'b'}, and the cluster has space for 0" in text
    assert verdict_of(wanted, Growth([NodeGroup("w", {"CPU": 1.0}, 0, 1, {"zone": "b"})]))[0]
    assert not verdict_of(wanted, Growth([NodeGroup("w", {"CPU": 1.0}, 0, 1, {"zone": "c"})]))[0]
    cluster((1, {"zone": "a"}), (1, {"zone": "b"}))
    assert "space for all of them now" in verdict_of(wanted)[1]
    assert not verdict_of(Demand(3, 3, labels=[{"zone": "a"}, {"zone": "b"}, {}]))[0], "two nodes for three"


def test_a_label_that_ray_finds_out_by_itself_need_not_be_in_the_configuration(cluster: Any) -> None:
    cluster()
    wanted = Demand(labels=[{"ray.io/accelerator-type": "A100"}])
    assert verdict_of(wanted, Growth([NodeGroup("w", {"CPU": 1.0}, 0, 1)]))[0]
    other = NodeGroup("w", {"CPU": 1.0}, 0, 1, {"ray.io/accelerator-type": "L4"})
    assert not verdict_of(wanted, Growth([other]))[0]


def test_an_autoscaler_whose_limits_are_not_known_is_no_reason_to_say_no(cluster: Any) -> None:
    cluster((1, {}), grows=True)
    can_start, text = verdict_of(Demand(4, 8))
    assert can_start
    assert "--config" in text
    assert verdict_of(Demand(4, 8), Growth([NodeGroup("w", {"CPU": 1.0}, 0, 2)]))[0] is False
    assert "--config" in verdict_of(Demand(4, 4, strategy="STRICT_PACK"))[1]


@pytest.mark.parametrize(
    ("wanted", "found", "words"),
    [
        (Demand(2, 4), RayCapacity([(node("a"), 1, 3)], []), "2 x (1 CPU). The cluster's nodes can hold 3"),
        (Demand(2, 4), RayCapacity([(node("a"), 1, 3)], []), "of which 1 are free now"),
        (Demand(labels=[{"zone": "b"}]), RayCapacity([], []), "1 x (1 CPU), on nodes with {'zone': 'b'}. "),
        (Demand(2, 2, labels=[{"zone": "b"}, {}]), RayCapacity([], []), ", on nodes with {'zone': 'b'} or {}. "),
        (Demand(2, 2, strategy="STRICT_SPREAD"), RayCapacity([], []), "2 x (1 CPU), STRICT_SPREAD. "),
        (
            Demand(3, 3, strategy="STRICT_PACK"),
            RayCapacity([*TWO, *TWO], [], together=True),
            "can hold 4, for 2 on one of them, of which 4 are free now",
        ),
        (Demand(), RayCapacity([], [NodeType("w", 2, 0, 2)]), "with all nodes that the autoscaler may add, for 4"),
        (Demand(), RayCapacity([], [NodeType("w", 2, 0, None)]), "; the autoscaler may add nodes without limit"),
        (Demand(), RayCapacity([], [], in_the_dark=True), "; it is unknown here what an autoscaler may add"),
        (Demand(), RayCapacity([], [NodeType("w", None, 0, 2)]), "; it is unknown here what an autoscaler may add"),
    ],
)
def test_a_run_that_waits_says_what_for(
    wanted: Demand, found: RayCapacity, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_capacity, "capacity", lambda _: found)
    assert words in ray_capacity.why_waiting(wanted)


def status_of_v1(**types: str) -> bytes:
    return json.dumps({"time": 1.0, "autoscaler_report": {"active_nodes": {}, "node_type_mapping": types}}).encode()


def state_of_v2(version: int, *instances: str) -> bytes:
    told = GetClusterStatusReply()
    told.autoscaling_state.autoscaler_state_version = version
    for instance in instances:
        told.cluster_resource_state.node_states.add(instance_id=instance)
    encoded: bytes = told.SerializeToString()
    return encoded


@pytest.mark.parametrize(
    ("v1", "v2", "grows"),
    [
        (None, state_of_v2(0), False),
        (status_of_v1(ab="node_ab", cd="node_cd"), state_of_v2(0, ""), False),
        (status_of_v1(ab="ray.head.default"), state_of_v2(0, ""), True),
        (b'{"time": 1.0}', state_of_v2(0), False),
        (b'{"autoscaler_report": null}', state_of_v2(0), False),
        (None, state_of_v2(2, "", ""), False),
        (None, state_of_v2(2, "i-123"), True),
        (None, state_of_v2(0, "i-123"), False),
        (b"not what it was", state_of_v2(0), True),
        (None, b"not what it was", True),
    ],
)
def test_an_autoscaler_is_known_by_what_it_reports(
    v1: bytes | None, v2: bytes, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray 2.49 and 2.60 do, on clusters with an autoscaler and without."""
    gcs = SimpleNamespace(
        internal_kv_get=lambda key, _: v1 if key == b"__autoscaling_status" else None,
        get_cluster_status=lambda **_: v2,
    )
    monkeypatch.setattr(growth, "_gcs", lambda: gcs)
    assert growth.seems_to_grow() is grows
