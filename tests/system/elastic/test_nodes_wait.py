"""Too few nodes: the run waits, says for what, costs nothing meanwhile, and can be stopped."""

from __future__ import annotations

import os
import signal
import time

import pytest

import holdfast.train as train
from support.elastic.elastic_job import Scene, wait_until


def test_a_fixed_attempt_waits_for_a_replacement(
    scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DISPLAY", "plain")
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    second = cluster.add_node(cpus=1)
    used: list[float] = []

    def replace() -> None:
        scene.await_steps(3)
        cluster.remove_node(second)
        scene.await_record("CapacityLacking")
        before = time.process_time(), time.monotonic()
        time.sleep(1.0)
        used.append((time.process_time() - before[0]) / (time.monotonic() - before[1]))
        cluster.add_node(cpus=1)
        scene.await_steps(3)

    with scene.meanwhile(replace):
        scene.check(scene.trainer(2, max_failures=1, verbose=None).fit())
    assert "waiting for nodes: 2 workers are needed, and 1 fit now" in "".join(capfd.readouterr())
    assert scene.worlds() == [2, 2]
    assert scene.kinds() == ["node lost"]
    assert used[0] < 0.2  # of a core


def test_a_run_without_any_node_waits_for_the_first(scene: Scene) -> None:
    def join() -> None:
        scene.await_record("CapacityLacking")
        scene.cluster.add_node(cpus=1)
        scene.cluster.add_node(cpus=1)
        scene.await_steps(2, world=2)

    with scene.meanwhile(join):
        scene.check(scene.trainer(2).fit())
    assert scene.worlds() == [2]


def test_ctrl_c_ends_the_wait(scene: Scene) -> None:
    scene.cluster.add_node(cpus=1)

    def interrupt() -> None:
        scene.await_record("CapacityLacking")
        os.kill(os.getpid(), signal.SIGINT)
        scene.await_record("RunEnded")

    with pytest.raises(KeyboardInterrupt), scene.meanwhile(interrupt):
        scene.trainer(2).fit()
    assert scene.worlds() == []
    assert scene.records("RunEnded")[0].body["outcome"] == "stopped"


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_lost_node_costs_one_failure(allowed: int, scene: Scene) -> None:
    """Exactly as many as max_failures says, whatever is left for the attempt."""
    cluster = scene.cluster
    keeper = cluster.add_node(cpus=1)
    others = [cluster.add_node(cpus=1) for _ in range(allowed + 1)]

    def remove() -> None:
        for world, node in zip(range(allowed + 2, 1, -1), others, strict=True):
            scene.await_steps(3, world=world)
            cluster.remove_node(node)
        scene.await_record("RunEnded")

    with pytest.raises(train.WorkerGroupError, match=r"was lost with its node.*\[node lost\]"), scene.meanwhile(remove):
        scene.trainer((1, 4), max_failures=allowed).fit()
    assert len(scene.worlds()) == allowed + 1
    assert [node.id for node in cluster.nodes] == [keeper]


def test_the_wait_is_in_the_ledger(scene: Scene) -> None:
    def join() -> None:
        scene.await_record("CapacityLacking")
        wait_until(lambda: scene.run.root.exists(), "the run's directory")
        scene.cluster.add_node(cpus=1)
        scene.await_steps(2)

    with scene.meanwhile(join):
        result = scene.trainer(1).fit()
    assert result.ledger.capacity_s > 0
