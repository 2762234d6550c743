"""A node on which workers crash again and again rests, and is used again later; no driver's death forgets that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
import holdfast.train as train
from holdfast.core.run.state import Durable
from holdfast.runs.past import read_past
from holdfast.store import journal
from support.elastic.elastic_job import Scene, wait_until
from support.repository import SUPPORT

FAULT = {"kind": "SIGKILL", "at": 2, "times": 2, "node": "bad"}
ENDS_WITHIN_S = 120.0


@pytest.mark.parametrize(("signal_name", "kind"), [("SIGKILL", "crash"), ("SIGSTOP", "hang")])
def test_a_node_where_workers_crash_or_hang_rests_and_comes_back(
    signal_name: str, kind: str, scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DISPLAY", "plain")
    monkeypatch.setenv("HOLDFAST_BAD_NODE_FAILURES", "2")
    monkeypatch.setenv("HOLDFAST_BAD_NODE_REST_S", "3")
    scene.cluster.add_node(cpus=1, node_id="good")
    scene.cluster.add_node(cpus=1, node_id="bad")

    def wait() -> None:
        scene.await_steps(2, world=1)
        scene.await_record("NodeRested")
        scene.await_steps(2, world=2)

    with scene.meanwhile(wait):
        fault = {**FAULT, "kind": signal_name}
        scene.check(scene.trainer((1, 2), config={"fault": fault}, max_failures=5, verbose=None).fit())
    assert scene.worlds() == [2, 2, 1, 2]
    assert scene.kinds() == [kind, kind]
    assert scene.records("NodeRested")[0].body["node"] == "bad"
    assert "bad had 2 failures: no worker is placed there for 3 s" in "".join(capfd.readouterr())


def test_errors_of_the_script_are_not_the_nodes_fault(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_BAD_NODE_FAILURES", "1")
    scene.cluster.add_node(cpus=1, node_id="good")
    scene.cluster.add_node(cpus=1, node_id="bad")
    fault = {**FAULT, "kind": "exception"}

    def wait() -> None:
        scene.await_record("GroupStarted", 3)
        scene.await_steps(2, world=2)

    with scene.meanwhile(wait):
        scene.check(scene.trainer((1, 2), config={"fault": fault}, max_failures=5).fit())
    assert scene.worlds() == [2, 2, 2]


def test_a_node_that_is_needed_does_not_rest(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too few others, a bad node is better than none."""
    monkeypatch.setenv("HOLDFAST_BAD_NODE_FAILURES", "1")
    scene.cluster.add_node(cpus=1, node_id="good")
    scene.cluster.add_node(cpus=1, node_id="bad")

    def wait() -> None:
        scene.await_record("GroupStarted", 3)
        scene.await_steps(2, world=2)

    with scene.meanwhile(wait):
        scene.check(scene.trainer(2, config={"fault": FAULT}, max_failures=5).fit())
    assert scene.worlds() == [2, 2, 2]


def state_of(scene: Scene) -> Durable:
    return read_past(journal.read(scene.run)[0]).state


@pytest.mark.timeout(300)
def test_a_drivers_death_forgets_no_budget_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first driver sees the node rest, and is killed; the second one leaves the node alone too."""
    monkeypatch.setenv("HOLDFAST_BAD_NODE_FAILURES", "2")
    monkeypatch.setenv("HOLDFAST_BAD_NODE_REST_S", "600")
    with holdfast.LocalCluster() as cluster:
        scene = Scene(tmp_path, cluster)
        command = [sys.executable, str(SUPPORT / "elastic" / "killed_driver.py"), str(tmp_path), json.dumps(FAULT)]
        driver = subprocess.Popen(command)
        try:
            wait_until(lambda: [w for _, w, _ in scene.notes("step")][-1:] == [1], "a step without the bad node")
        finally:
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait(ENDS_WITHIN_S)
        assert state_of(scene).resting == {"bad"}
        cluster.add_node(cpus=1, node_id="bad")
        cluster.add_node(cpus=1, node_id="good")

        def wait() -> None:
            scene.await_record("DriverStarted", 2)
            scene.await_steps(3)

        with scene.meanwhile(wait):
            scene.check(scene.trainer((1, 2), max_failures=2).fit())
        assert scene.worlds() == [2, 2, 1, 1]
        assert state_of(scene).spent == {"failures": 2}


def test_a_budget_that_an_earlier_driver_used_stays_used(tmp_path: Path) -> None:
    """Of two retries the killed driver took both: the first failure after it ends the run."""
    with holdfast.LocalCluster() as cluster:
        scene = Scene(tmp_path, cluster)
        command = [sys.executable, str(SUPPORT / "elastic" / "killed_driver.py"), str(tmp_path), json.dumps(FAULT)]
        driver = subprocess.Popen(command)
        try:
            scene.await_record("GroupStarted", 3)
            scene.await_steps(2)
        finally:
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait(ENDS_WITHIN_S)
        cluster.add_node(cpus=2, node_id="bad")
        third = {**FAULT, "times": 3, "rank": 1}
        with pytest.raises(train.WorkerGroupError, match="No retry left"):
            scene.trainer(2, config={"fault": third}, max_failures=2).fit()
        assert len(scene.records("WorkerFailed")) == 3
