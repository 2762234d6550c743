"""Runs on a real Ray cluster of several nodes on this machine, which lose workers and nodes, and are given new ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.engine.demand import Demand
from holdfast.engine.ray.ray_engine import RayEngine
from holdfast.errors import ControllerError
from holdfast.runs.stored_experiment import load
from holdfast.store.location import Location
from holdfast.testing.engine_contract import ClusterContract
from holdfast.testing.engine_runs import Watcher, parent
from holdfast.wire import messages as wire
from support.object_stores.servers import s3_server
from support.ray_clusters import driver_shell
from support.ray_clusters.ray_machines import (
    Machines,
    RayScene,
    cluster_job,
    end,
    left_over,
    name_of,
    our_processes,
    wait_until,
)

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

OTHER_DRIVER = """
import os, sys, ray
class HoldfastAgent:
    def pid(self): return os.getpid()
ray.init(address=sys.argv[1], namespace="another", log_to_driver=False)
group = ray.util.placement_group([{"CPU": 1}], name="holdfast:other")
options = {"num_cpus": 0, "resources": {"other": 1}, "name": "holdfast:other"}
actor = ray.remote(HoldfastAgent).options(**options).remote()
print(ray.get(actor.pid.remote()), flush=True)
sys.stdin.read()
"""


def test_a_killed_worker_comes_back(machines: Machines, scene: RayScene) -> None:
    machines.top_up(2)

    def act() -> None:
        scene.await_steps(3, world=2)
        assert {what.split()[0] for what in left_over()} == {"actor", "placement", "process"}, "the check is blind"
        scene.kill_worker(1)
        scene.await_record("GroupStarted", 2)
        scene.await_steps(3, world=2)

    with scene.meanwhile(act):
        result = scene.trainer(2, max_failures=1).fit()
    scene.check(result)
    assert scene.kinds() == ["crash"]
    assert scene.worlds() == [2, 2]


def test_what_another_driver_leaves_behind_is_found(machines: Machines) -> None:
    """It has a namespace of its own, and its actor stays when its node is killed."""
    node = machines.add(1, resources={"other": 1})
    command = [sys.executable, "-c", OTHER_DRIVER, machines.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        actor = int(other.stdout.readline())
        assert {"actor holdfast:other", "placement group holdfast:other"} <= set(left_over())
        assert not list(our_processes()), "it is Ray's, as long as there is a raylet"
        os.kill(actor, signal.SIGSTOP)  # so that nothing in it sees that it is alone
        machines.kill(node)
        try:
            wait_until(lambda: actor in dict(our_processes()), "an actor without a raylet")
        finally:
            end([actor])


def test_a_killed_node_is_replaced_by_one_in_reserve(
    machines: Machines, scene: RayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.top_up(3)
    monkeypatch.setenv("HOLDFAST_STANDBY_NODES", "1")

    def act() -> None:
        scene.await_steps(3, world=2)
        wait_until(lambda: sum(what.startswith("actor") for what in left_over()) == 3, "an agent on the third node")
        machines.kill(scene.node_of(1))
        scene.await_record("GroupStarted", 2)
        scene.await_steps(3, world=2)

    with scene.meanwhile(act):
        result = scene.trainer(2, max_failures=1).fit()
    scene.check(result)
    assert scene.kinds() == ["node lost"]
    assert scene.worlds() == [2, 2]


def test_a_run_that_may_grow_takes_a_node_that_joins_and_goes_on_without_one_that_is_killed(
    machines: Machines, scene: RayScene
) -> None:
    machines.top_up(2)

    def act() -> None:
        scene.await_steps(3, world=2)
        machines.add()
        scene.await_steps(3, world=3)
        machines.kill(scene.node_of(2))
        scene.await_steps(3, world=2)

    with scene.meanwhile(act):
        result = scene.trainer((1, 3), max_failures=1).fit()
    scene.check(result)
    assert scene.worlds()[-3:] == [2, 3, 2]  # a busy machine may have begun with the first node that was ready
    assert set(scene.lost_steps()[:-1]) == {0}


def test_a_node_that_is_drained_is_left_before_its_deadline(machines: Machines, scene: RayScene) -> None:
    machines.top_up(3)

    def act() -> None:
        scene.await_steps(3, world=2)
        machines.drain(scene.node_of(1), 600)
        scene.await_record("GroupStarted", 2)
        scene.await_steps(3, world=2)

    with scene.meanwhile(act):
        result = scene.trainer(2).fit()
    scene.check(result)
    assert scene.worlds() == [2, 2]
    assert scene.lost_steps() == [0]
    assert {rank for rank, *_ in scene.notes("notice")} == {0, 1}


def test_a_run_in_a_bucket_loses_a_worker_and_a_node(
    machines: Machines, scene: RayScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes' keys are those of the runtime environment. What a lost node had staged may be lost with it."""
    machines.top_up(3)

    def on_nodes(fn: Any, run_config: train.RunConfig, **options: Any) -> train.DataParallelTrainer:
        run_config = replace(run_config, worker_runtime_env={"env_vars": server.environment})
        return train.DataParallelTrainer(fn, run_config=run_config, **options)

    def act() -> None:
        scene.await_steps(3, world=2)
        scene.kill_worker(1)
        wait_until(lambda: len(scene.notes("start")) == 4, "the next group")
        scene.await_steps(3, world=2)
        machines.kill(scene.node_of(0))
        wait_until(lambda: len(scene.notes("start")) == 6, "the one after it")
        scene.await_steps(3, world=2)

    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        scene.storage = f"s3://{server.make_bucket()}/runs"
        with scene.meanwhile(act):
            result = scene.trainer(2, kind=on_nodes, max_failures=2).fit()
        scene.check(result)
        failures = load(Location.parse("storage", f"{scene.storage}/run")).ledger.failures
        assert [failure.kind for failure in failures] == ["crash", "node lost"]


def test_the_same_command_goes_on_with_a_run_whose_driver_was_killed(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(2)
    driver = driver_shell.start(tmp_path, machines.address)
    driver_shell.await_checkpoints(driver, tmp_path, 3)
    driver.kill()
    driver.communicate()
    wait_until(lambda: not left_over(), "the end of all that the killed driver had")
    driver_shell.finish(driver_shell.start(tmp_path, machines.address))


def telling(scene: RayScene, scaling: train.ScalingConfig, **runtime_env: Any) -> train.DataParallelTrainer:
    """A run whose workers note what they are given."""
    run = train.RunConfig(
        name="run", storage_path=str(scene.home), engine="ray", worker_runtime_env=runtime_env, verbose=0
    )
    config = {"notes": str(scene.home / "notes")}
    return train.DataParallelTrainer(
        cluster_job.tell_devices, train_loop_config=config, scaling_config=scaling, run_config=run
    )


def test_workers_get_the_gpus_the_labels_and_the_variables_that_they_ask_for(
    machines: Machines, scene: RayScene
) -> None:
    wanted = machines.add(2, num_gpus=1, labels={"zone": "b"})
    scaling = train.ScalingConfig(
        num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 0.5}, label_selector={"zone": "b"}
    )
    telling(scene, scaling, env_vars={"OF_THE_RUNTIME_ENV": "in ${HOME}"}).fit()
    assert sorted(scene.notes("devices")) == [(0, 0, "0", [0]), (1, 1, "0", [0])]
    assert sorted(scene.notes("env")) == [(rank, f"in {os.environ['HOME']}", name_of(wanted)) for rank in (0, 1)]


def test_workers_on_one_node_with_a_gpu_each_get_different_ones(machines: Machines, scene: RayScene) -> None:
    """Each sees both, as with Ray Train, and knows which is its own."""
    machines.add(2, num_gpus=2, labels={"zone": "c"})
    telling(scene, train.ScalingConfig(num_workers=2, use_gpu=True, label_selector={"zone": "c"})).fit()
    assert sorted(scene.notes("devices")) == [(0, 0, "0,1", [0]), (1, 1, "0,1", [1])]


@pytest.mark.soak
def test_each_kind_of_accelerator_is_had_where_it_is(machines: Machines, tmp_path: Path) -> None:
    """Whichever node Ray would choose by itself, it is wrong for one of them."""
    kinds = ("A100", "T4")
    nodes = {kind: machines.add(1, resources={f"accelerator_type:{kind}": 1}) for kind in kinds}
    for kind, node in nodes.items():
        (tmp_path / kind).mkdir()
        scene = RayScene(tmp_path / kind, machines)
        telling(scene, train.ScalingConfig(accelerator_type=kind)).fit()
        assert scene.notes("env") == [(0, None, name_of(node))]


def test_a_runtime_environment_that_fails_ends_the_run(machines: Machines, scene: RayScene) -> None:
    machines.top_up(1)
    with pytest.raises(ControllerError, match=r"(?s)the runtime environment cannot be set up on .*nowhere\.zip"):
        telling(scene, train.ScalingConfig(), working_dir="file:///nowhere.zip").fit()


def test_cluster_check_counts_what_the_cluster_has(machines: Machines) -> None:
    machines.top_up(2)
    command = [sys.executable, "-m", "holdfast", "cluster", "check", "--address", machines.address, "--json"]
    with machines.talkative():
        roomy = subprocess.run([*command, "--workers", "1:99"], capture_output=True, text=True, timeout=120)
    assert roomy.returncode == 0, roomy.stderr
    assert "a word of Ray's" in roomy.stderr, roomy.stdout
    found = json.loads(roomy.stdout)
    assert found["room"]["now"] >= 2
    assert {node["name"] for node in found["nodes"]} >= {name_of(id) for id in machines.nodes} - {""}
    assert "never has more than" in found["verdict"]
    scarce = subprocess.run([*command, "--workers", "1", "--gpus", "9"], capture_output=True, text=True, timeout=120)
    assert scarce.returncode == 1, scarce.stderr


class RayLab:
    """Nodes of the cluster, by the names that the engine has for them."""

    def __init__(self, machines: Machines) -> None:
        machines.top_up(2)
        self._machines, self.engine = machines, RayEngine(Demand(2, 2, strategy="STRICT_SPREAD"))

    def kill(self, node: str) -> None:
        self._machines.kill(self._id(node))

    def drain(self, node: str, deadline_s: float) -> None:
        self._machines.drain(self._id(node), deadline_s)

    def _id(self, node: str) -> str:
        return next(id for id in self._machines.nodes if name_of(id) == node)


class TestRayEngine(ClusterContract):
    @pytest.fixture
    def lab(self, machines: Machines) -> RayLab:
        return RayLab(machines)

    @pytest.mark.soak
    def test_the_next_agent_is_started_by_the_same_actor(
        self, lab: RayLab, runs: list[Watcher], tmp_path: Path
    ) -> None:
        """Else the node would be doubted, and other room asked for."""
        run, agents = self.open(lab, runs, tmp_path)
        node, agent = next(iter(agents.items()))
        actor = parent(agent)
        os.kill(agent, signal.SIGKILL)
        run.take(wire.NodeLost, node)
        assert parent(run.take(wire.NodeReady, node).pid) == actor
