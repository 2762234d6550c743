"""An attempt grows as nodes join and shrinks as they die; what is planned loses no step."""

from __future__ import annotations

import pytest

from support.elastic.elastic_job import Scene


@pytest.mark.timeout(300)
def test_from_one_of_four_up_and_down(scene: Scene) -> None:
    cluster = scene.cluster
    cluster.add_node(cpus=1)

    def come_and_go() -> None:
        scene.await_steps(3, world=1)
        second = cluster.add_node(cpus=2)
        scene.await_steps(3, world=3)
        cluster.remove_node(second)
        scene.await_steps(3, world=1)
        cluster.add_node(cpus=8)
        scene.await_steps(3, world=4)

    with scene.meanwhile(come_and_go):
        result = scene.trainer((1, 4), max_failures=1).fit()
    scene.check(result)
    assert scene.worlds() == [1, 3, 1, 4]
    assert scene.kinds() == ["node lost"]
    grown, lost, grown_again = scene.lost_steps()
    assert grown == grown_again == 0
    assert lost <= 1  # it saves every step: at most the one that was not whole when the node went
    assert [record.body["reason"] for record in scene.records("HandedOver")] == ["resize", "resize"]


def test_a_script_that_saves_seldom_and_never_asks_loses_no_step_either(scene: Scene) -> None:
    """The attempt continues until it saves by itself."""
    cluster = scene.cluster
    cluster.add_node(cpus=1)

    def join() -> None:
        scene.await_steps(3)
        cluster.add_node(cpus=1)
        scene.await_steps(3, world=2)

    with scene.meanwhile(join):
        result = scene.trainer((1, 2), config={"every": 10, "asks": False}).fit()
    scene.check(result)
    assert scene.worlds() == [1, 2]
    assert scene.lost_steps() == [0]
    assert scene.records("GroupStarted")[1].body["base"] % 10 == 0


def test_a_script_that_asks_need_not_save_at_all_otherwise(scene: Scene) -> None:
    cluster = scene.cluster
    cluster.add_node(cpus=1)

    def join() -> None:
        scene.await_steps(3)
        cluster.add_node(cpus=2)
        scene.await_steps(2, world=3)
        cluster.add_node(cpus=1)
        scene.await_steps(2, world=4)

    with scene.meanwhile(join):
        result = scene.trainer((1, 4), config={"every": 0}).fit()
    scene.check(result)
    assert scene.worlds() == [1, 3, 4]
    assert scene.lost_steps() == [0, 0]


def test_two_nodes_that_join_one_after_the_other(scene: Scene) -> None:
    """The second one comes while the attempt is handed over for the first."""
    cluster = scene.cluster
    cluster.add_node(cpus=1)

    def join() -> None:
        scene.await_steps(3)
        cluster.add_node(cpus=1)
        cluster.add_node(cpus=1)
        scene.await_steps(2, world=3)

    with scene.meanwhile(join):
        result = scene.trainer((1, 3)).fit()
    scene.check(result)
    assert scene.worlds() in ([1, 2, 3], [1, 3])
    assert set(scene.lost_steps()) == {0}


def test_a_run_without_a_range_stays_as_it_is(scene: Scene) -> None:
    cluster = scene.cluster
    cluster.add_node(cpus=1)

    def join() -> None:
        scene.await_steps(3)
        cluster.add_node(cpus=1)
        scene.await_steps(20)

    with scene.meanwhile(join):
        scene.check(scene.trainer(1).fit())
    assert scene.worlds() == [1]
