"""Ray on machines of its own: a node that is cut off and lives on, a head that is lost and comes back, and a directory
that a node does not see."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray

from support.ray_clusters import cut_off_job
from support.ray_clusters.ray_hosts import GCS_PORT, Host, hosts
from support.ray_clusters.ray_machines import our_processes, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
]
JOB = str(Path(cut_off_job.__file__))
NODE_TIMEOUT_S = 5.0
MORE_STEPS = 30


def begin(home: Path, where: Host, head: Host) -> subprocess.Popen[str]:
    """The job, once each of its ranks has made some steps."""
    job = submit(home, where, head)
    await_group(home, job, 1)
    return job


def submit(home: Path, where: Host, head: Host) -> subprocess.Popen[str]:
    (home / "steps").mkdir()
    address = f"{head.address}:{GCS_PORT}"
    return where.start(sys.executable, JOB, str(home), RAY_ADDRESS=address, HOLDFAST_NODE_TIMEOUT_S=str(NODE_TIMEOUT_S))


def host_of(worker: cut_off_job.Worker, nodes: list[Host]) -> Host:
    return next(node for node in nodes if worker.node.startswith(f"{node.address}-"))


def await_group(home: Path, job: subprocess.Popen[str], number: int) -> list[cut_off_job.Worker]:
    """The ranks of the group, once each has made some steps."""

    def ranks() -> list[cut_off_job.Worker]:
        assert job.poll() is None, (home / "hosts.log").read_text()
        return [worker for worker in cut_off_job.workers(home)[2 * number - 2 :] if len(worker.steps) >= 5]

    wait_until(lambda: len(ranks()) == 2, f"the first steps of group {number}")
    return ranks()


def end(home: Path, job: subprocess.Popen[str], head: Host) -> int:
    """Have it make some more steps; how many there are in the end. Nothing of it is left on any machine."""
    held = head.known_to_ray()
    assert {what.split()[0] for what in held} == {"actor", "placement"}, "the check is blind"
    cut_off_job.say_enough(home, steps_made(home) + MORE_STEPS)
    job.communicate(timeout=300)
    assert job.returncode == 0, (home / "hosts.log").read_text()
    found = json.loads((home / "found.json").read_text())
    assert found["right"]
    assert found["history"] == list(range(1, len(found["history"]) + 1))
    await_nothing_left(head)
    return len(found["history"])


def await_nothing_left(head: Host) -> None:
    wait_until(lambda: not list(our_processes()), "the end of all processes of the run")
    wait_until(lambda: not head.known_to_ray(), "the end of all that Ray had for the run")


def steps_made(home: Path) -> int:
    """Or more, if some were made twice."""
    return sum(len(worker.steps) for worker in cut_off_job.workers(home) if worker.rank == 0)


@pytest.mark.parametrize("fixed", [False, True], ids=["for good", "for a while"])
def test_a_node_that_is_cut_off_ends_its_workers_before_another_takes_over(tmp_path: Path, fixed: bool) -> None:
    with hosts(4, tmp_path) as (head, *nodes):
        head.start_head("--include-dashboard=false")
        for node in nodes:
            node.join(head, "--num-cpus=1")
        job = begin(tmp_path, head, head)
        first = cut_off_job.workers(tmp_path)
        victim = host_of(first[1], nodes)
        victim.port.cut()
        cut = time.monotonic()
        second = await_group(tmp_path, job, 2)
        if fixed:
            victim.port.fix()
        last = max(step for worker in cut_off_job.workers(tmp_path)[:2] for step in worker.steps)
        assert last > cut + 1.0, "the rank that was cut off did not train on, so this shows nothing"
        assert last < min(worker.steps[0] for worker in second), "two groups trained at once"
        assert not any(worker.node == first[1].node for worker in second)
        end(tmp_path, job, head)
        assert len(cut_off_job.workers(tmp_path)) == 4, "there were just two groups"


def test_a_node_that_does_not_see_the_storage_ends_the_run_at_its_start(tmp_path: Path) -> None:
    """It has another disk there."""
    with hosts(2, tmp_path) as (head, node):
        node.run("mount", "-t", "tmpfs", "none", str(tmp_path))
        head.start_head("--include-dashboard=false")
        node.join(head, "--num-cpus=2")
        job = submit(tmp_path, head, head)
        job.communicate(timeout=300)
        said = (tmp_path / "hosts.log").read_text()
        assert job.returncode == 1, said
        assert re.search(rf"ControllerError: .*does not see the directory {tmp_path}/run: .*storage_path", said), said
        assert not cut_off_job.workers(tmp_path)
        await_nothing_left(head)


@pytest.mark.skipif(tuple(map(int, ray.__version__.split(".")[:2])) < (2, 60), reason="Ray has no RocksDB")
def test_a_run_goes_on_without_the_head_and_uses_it_again_when_it_is_back(tmp_path: Path) -> None:
    """Ray keeps what the head knows in RocksDB, or in Redis. The driver is not on the head's machine."""
    with hosts(4, tmp_path) as (head, *nodes):
        head.env |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(tmp_path / "gcs")}
        lose_the_head(tmp_path, head, nodes)


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server")
def test_a_run_goes_on_without_a_head_that_keeps_what_it_knows_in_redis(tmp_path: Path) -> None:
    with hosts(5, tmp_path) as (head, *nodes, store):
        store.run(*f"redis-server --bind {store.address} --protected-mode no --daemonize yes --dir {tmp_path}".split())
        head.env |= {"RAY_REDIS_ADDRESS": f"{store.address}:6379"}
        lose_the_head(tmp_path, head, nodes)


def lose_the_head(home: Path, head: Host, nodes: list[Host]) -> None:
    """Meanwhile a worker dies, which is none of Ray's business. When the head is back, a node does: the next group
    needs room that the new head grants."""
    head.start_head("--include-dashboard=false")
    for node in nodes:
        node.join(head, "--num-cpus=1")
    job = begin(home, nodes[0], head)
    head.power_off()
    made = steps_made(home)
    wait_until(lambda: steps_made(home) >= made + MORE_STEPS, "steps without a head")
    first = cut_off_job.workers(home)
    assert len(first) == 2, "the group noticed"
    other = next(worker for worker in first if host_of(worker, nodes) is not nodes[0])
    host_of(other, nodes).run("kill", "-9", str(other.pid))
    await_group(home, job, 2)
    head.power_on()
    head.start_head("--include-dashboard=false")
    host_of(other, nodes).power_off()
    await_group(home, job, 3)
    end(home, job, head)
