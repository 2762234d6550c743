"""Preemption: a notice reaches all ranks at the same step, and the attempt hands over before the nodes go."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path

import pytest

import holdfast.train as train
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step as core
from holdfast.core.run.state import Attempt, Durable, Phase, Rank, Ranks, RankStatus, RunState
from holdfast.platform import processes
from support.elastic.elastic_job import Scene, wait_until


def test_a_drain_with_a_deadline(scene: Scene) -> None:
    """All ranks get the same answer at the same step, and nothing is lost; it costs no failure."""
    cluster = scene.cluster
    cluster.add_node(cpus=2)
    second = cluster.add_node(cpus=1)
    handed_over_at: list[float] = []

    def drain() -> None:
        scene.await_steps(3, world=3)
        before = time.time()
        cluster.drain_node(second, deadline_s=60)
        scene.await_record("HandedOver")
        handed_over_at.append(scene.records("HandedOver")[0].time - before)
        scene.await_steps(2, world=2)
        assert second in [node.id for node in cluster.nodes]  # it went on long before the deadline

    with scene.meanwhile(drain):
        scene.check(scene.trainer((1, 3), max_failures=0, max_preemption_failures=0).fit())
    assert scene.worlds() == [3, 2]
    assert scene.lost_steps() == [0]
    assert scene.kinds() == []
    notices = scene.notes("notice")
    first = min(step for _, step, *_ in notices)
    assert {rank for rank, step, *_ in notices if step == first} == {0, 1, 2}
    assert len({(deadline, str(nodes)) for _, _, deadline, nodes in notices}) == 1
    assert notices[0][3] == {second: [2]}
    assert handed_over_at[0] < 60


def test_a_second_notice_while_the_attempt_hands_over(scene: Scene) -> None:
    """Rank 0 may wait at its last report when a later one is agreed upon."""
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    going = [cluster.add_node(cpus=1) for _ in range(2)]

    def drain() -> None:
        scene.await_steps(3, world=3)
        for node, deadline_s in zip(going, (60, 600), strict=True):
            cluster.drain_node(node, deadline_s)
        scene.await_steps(2, world=1)

    with scene.meanwhile(drain):
        scene.check(scene.trainer((1, 3)).fit())
    assert scene.worlds() in ([3, 1], [3, 2, 1])
    assert set(scene.lost_steps()) == {0}


def test_the_earliest_of_several_deadlines_counts() -> None:
    attempt = Attempt(Ranks((Rank(RankStatus.RUNNING),) * 3), started=0.0)
    state = RunState(Durable(attempt_number=1, attempt_size=3), attempt, Phase.RUNNING)
    state, first, _ = core.step(state, ev.NodeDrains("b", 60.0, (1,)), 100.0)
    state, second, _ = core.step(state, ev.NodeDrains("c", 600.0, (2,)), 110.0)
    asked = [command for command in (*first, *second) if isinstance(command, do.AskHandover)]
    assert [(command.nodes, command.deadline_s) for command in asked] == [(("b",), 60.0), (("b", "c"), 50.0)]
    timers = [command.after_s for command in (*first, *second) if isinstance(command, do.SetTimer)]
    assert timers == [59.0, 49.0]


def test_a_fixed_attempt_moves_to_another_node(scene: Scene) -> None:
    cluster = scene.cluster
    first = cluster.add_node(cpus=1)

    def drain() -> None:
        scene.await_steps(3)
        cluster.add_node(cpus=1)
        cluster.drain_node(first, deadline_s=60)
        scene.await_record("GroupStarted", 2)
        scene.await_steps(2)

    with scene.meanwhile(drain):
        scene.check(scene.trainer(1).fit())
    assert scene.lost_steps() == [0]
    assert scene.kinds() == []


def test_a_script_that_does_not_save_in_time(scene: Scene) -> None:
    """It is preempted: that has its own budget too, and its node was on notice."""
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    second = cluster.add_node(cpus=1)

    def drain() -> None:
        scene.await_steps(3, world=2)
        cluster.drain_node(second, deadline_s=1.5)
        scene.await_steps(2, world=1)

    with scene.meanwhile(drain):
        scene.check(scene.trainer((1, 2), config={"every": 0, "asks": False}, max_failures=0).fit())
    assert scene.kinds() == ["preempted"]
    assert scene.worlds() == [2, 1]


def test_a_script_that_ends_before_the_deadline_has_finished(scene: Scene) -> None:
    """That it did not save for the hand-over costs nothing then."""
    node = scene.cluster.add_node(cpus=2)

    def drain() -> None:
        scene.await_steps(2, world=2)
        scene.cluster.drain_node(node, deadline_s=60)
        wait_until(lambda: scene.notes("notice"), "the notice")

    config = {"every": 0, "asks": False}
    with scene.meanwhile(drain):
        scene.check(scene.trainer(2, config=config, max_failures=0, max_preemption_failures=0).fit())
    assert scene.kinds() == []


def test_a_script_that_does_not_save_in_time_and_has_no_budget(scene: Scene) -> None:
    """Preemptions have a budget of their own."""
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    second = cluster.add_node(cpus=1)

    def drain() -> None:
        scene.await_steps(3, world=2)
        cluster.drain_node(second, deadline_s=1.5)
        scene.await_record("RunEnded")

    config = {"every": 0, "asks": False}
    with pytest.raises(train.PreemptionError) as caught, scene.meanwhile(drain):
        scene.trainer((1, 2), config=config, max_failures=7, max_preemption_failures=0).fit()
    assert caught.value.drain_timed_out
    info = caught.value.preemption_info
    assert isinstance(info, train.PreemptionInfo)
    assert info.preempted_node_ids == [second]
    assert info.deadline_ms is not None
    assert "max_preemption_failures=0" in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.preemption_info) == (str(caught.value), info)


def test_sigterm_to_the_driver_is_a_notice(scene: Scene, tmp_path: Path) -> None:
    """The workers see it, bring a last checkpoint, and the run resumes from there the next time."""
    cluster = scene.cluster
    cluster.add_node(cpus=2)

    def terminate() -> None:
        scene.await_steps(3)
        os.kill(os.getpid(), signal.SIGTERM)
        scene.await_record("RunEnded")

    trainer = scene.trainer(2, config={"every": 0}, preemption_grace_s=60)
    with pytest.raises(SystemExit) as caught, scene.meanwhile(terminate):
        trainer.fit()
    assert caught.value.code == 128 + signal.SIGTERM
    notices = scene.notes("notice")
    assert {rank for rank, *_ in notices} == {0, 1}
    assert notices[0][3] == {"node-1": [0, 1]}
    assert len(scene.records("Committed")) == 1
    (tmp_path / "enough").unlink()
    with scene.meanwhile(lambda: scene.await_steps(2)):
        scene.check(trainer.fit())
    assert scene.lost_steps() == [0]


def test_a_second_sigterm_does_not_wait(scene: Scene) -> None:
    scene.cluster.add_node(cpus=1)

    def terminate() -> None:
        scene.await_steps(3)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: scene.notes("notice"), "the notice")
        os.kill(os.getpid(), signal.SIGTERM)
        scene.await_record("RunEnded")

    with pytest.raises(SystemExit), scene.meanwhile(terminate):
        scene.trainer(1, config={"every": 0, "asks": False}, preemption_grace_s=3600).fit()


def test_sigterm_to_an_agent_is_a_notice(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PREEMPTION_GRACE_S", "60")
    cluster = scene.cluster
    for _ in range(2):
        cluster.add_node(cpus=1)

    def terminate() -> None:
        scene.await_steps(3, world=2)
        os.kill(agents()[-1], signal.SIGTERM)
        scene.await_steps(2, world=1)

    with scene.meanwhile(terminate):
        scene.check(scene.trainer((1, 2)).fit())
    assert list(scene.notes("notice")[0][3].values()) in ([[0]], [[1]])  # the node that was ready first has rank 0
    assert scene.worlds()[:2] == [2, 1]
    assert scene.lost_steps()[0] == 0
    assert scene.kinds() == []


def agents() -> list[int]:
    """Of the nodes that this process has started, and that live: those of earlier tests may be zombies."""
    children = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    living = [pid for pid in children if processes.state(pid) not in ("", "Z", "X")]
    return sorted(pid for pid in living if Path(f"/proc/{pid}/comm").read_text().strip() == "hf-agent")
