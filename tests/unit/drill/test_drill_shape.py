"""What nodes a drill's own Ray cluster has for a run. No Ray is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.drill.on_ray import explained, shape_of
from holdfast.drill.own_cluster import OwnCluster
from holdfast.drill.stage import NodeShape, Stage
from holdfast.engine.demand import Demand
from holdfast.engine.ray.ray_agent import NodeUnusableError


@pytest.mark.parametrize(
    ("workers", "strategy", "count", "cpus"),
    [
        (1, "PACK", 2, 1.0),
        (4, "PACK", 3, 2.0),
        (5, "SPREAD", 3, 3.0),
        (4, "STRICT_SPREAD", 5, 1.0),
        (4, "STRICT_PACK", 2, 4.0),
    ],
)
def test_there_is_room_for_all_workers_and_one_node_in_reserve(
    workers: int, strategy: str, count: int, cpus: float
) -> None:
    shape = shape_of(Demand(workers, workers, strategy=strategy))
    assert (shape.count, shape.resources) == (count, {"CPU": cpus})


def test_workers_with_gpus_are_on_one_node() -> None:
    assert shape_of(Demand(2, 4, {"CPU": 1.0, "GPU": 1.0})).count == 1


def test_nodes_have_the_labels_that_workers_ask_for() -> None:
    shape = shape_of(Demand(labels=[{"zone": "b", "spot": "!yes"}, {"zone": "b", "kind": "in(x, y)"}]))
    assert shape.labels == {"zone": "b", "kind": "x"}


@pytest.mark.parametrize("labels", [[{"zone": "a"}, {"zone": "b"}], [{"ray.io/node-id": "some"}]])
def test_labels_that_one_kind_of_node_cannot_have_are_refused(labels: list[dict[str, str]]) -> None:
    with pytest.raises(ValueError, match="set RAY_ADDRESS to another cluster"):
        shape_of(Demand(labels=labels))


def test_a_node_that_does_not_see_the_drill_is_told_how_it_could(tmp_path: Path) -> None:
    stage = Stage.build(tmp_path / "stage", None)
    error = explained(NodeUnusableError(f"node-1 does not see the directory {stage.storage_dir}: ..."), stage)
    assert str(error) == (
        "node-1 does not see the directory of the drill: use holdfast drill --keep DIR with a directory that all nodes "
        "share"
    )


def test_what_a_driver_asks_for_is_taken_once(tmp_path: Path) -> None:
    stage, shape = Stage.build(tmp_path / "stage", None), NodeShape(2, {"CPU": 1.0})
    stage.ask_for_nodes(shape)
    stage.ask_to_go("drill-1", 5.0)
    assert list(stage.take_asked_nodes()) == [shape]
    assert stage.take_asked_to_go() == {"drill-1": 5.0}
    assert list(stage.take_asked_nodes()) == []
    assert stage.take_asked_to_go() == {}


def test_a_run_that_wants_no_cluster_has_none(tmp_path: Path) -> None:
    stage = Stage.build(tmp_path / "stage", None)
    with OwnCluster(tmp_path) as cluster:
        cluster.attend(stage)
        assert cluster.clear() == 0
    assert stage.cluster_address == ""
