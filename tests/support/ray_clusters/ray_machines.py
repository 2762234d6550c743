"""A Ray cluster of several raylets on this machine, and what a test does to its nodes.

``python ray_machines.py ADDRESS`` prints what of ours a cluster knows of, for one that this process cannot reach.
"""

from __future__ import annotations

import glob
import inspect
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from holdfast.platform import processes
from support.elastic import elastic_job
from support.elastic.elastic_job import Scene, wait_until
from support.object_stores.servers import SERVING
from support.ray_clusters import cluster_job

elastic_job.PATIENCE_S = 240.0  # a Ray cluster on two busy cores takes its time
_SLOWER = 5.0
HEAD = {"num_cpus": 0, "include_dashboard": False}
_ACTOR = "ray::HoldfastAg"  # Ray's process of an actor of ours, as the kernel cuts its name off


class Machines:
    """The head has no room for workers; each other node is a raylet of its own."""

    def __init__(self) -> None:
        self._before = descendants()
        self._cluster = patiently(lambda: Cluster(True, head_node_args={**HEAD, **ports()}, shutdown_at_exit=False))
        ray.init(address=self._cluster.address, logging_level="ERROR", log_to_driver=False)
        self.nodes: dict[str, Any] = {}  # by Ray's id
        self._drained: set[str] = set()
        self._added = 0

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, cpus: float = 1, **options: Any) -> str:
        """With an address of its own, which is not noted as that of the machine: older releases of Ray take a driver to
        be on any node with the address that is noted, and its job for ended when that is lost. So drivers are on the
        head."""
        self._added += 1
        own = {"node_ip_address": f"127.0.{1 + self._added // 250}.{1 + self._added % 250}", **ports(), **options}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ray._private.services.write_node_ip_address", lambda *_: None, raising=False)
            node = patiently(lambda: self._cluster.add_node(num_cpus=cpus, **own))
        self.nodes[node.node_id] = node
        return str(node.node_id)

    def kill(self, id: str) -> None:
        """As if the machine had lost power, as far as Ray can tell; what Ray started there lives on without it."""
        node = self.nodes.pop(id)
        for process in node.all_processes["raylet"]:
            process.process.kill()
            process.process.wait()
        self._cluster.worker_nodes.discard(node)
        node.kill_all_processes(check_alive=False, allow_graceful=False)

    def kill_head(self) -> None:
        self._cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)

    def kill_raylet_of_head(self) -> None:
        """The node that a driver of this machine is on; what the cluster knows is kept by another process."""
        self._cluster.head_node.all_processes["raylet"][0].process.kill()

    def drain(self, id: str, deadline_s: float) -> None:
        """A notice that the machine will be taken away."""
        self._drained.add(id)
        preemption = 2
        gcs = ray._private.worker.global_worker.gcs_client
        accepted, why = gcs.drain_node(id, preemption, "a test", int((time.time() + deadline_s) * 1000))
        assert accepted, why

    @contextmanager
    def talkative(self) -> Iterator[None]:
        """Ray has much to say to all drivers meanwhile, as when nodes die."""
        gcs = ray._private.worker.global_worker.gcs_client
        enough = threading.Event()

        def talk() -> None:
            while not enough.wait(0.01):
                ray._private.utils.publish_error_to_driver("a test", "a word of Ray's", gcs)

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    def top_up(self, count: int) -> list[str]:
        """Have so many nodes with one CPU each; tests leave others behind."""
        while len(stays := [id for id in self.nodes if id not in self._drained]) < count:
            self.add()
        return stays

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()
        end(started_since(self._before))


def ports() -> dict[str, int]:
    """Of a raylet's helpers."""
    names = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port", "metrics_export_port")
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("", 0))) for _ in names]
        return {name: server.getsockname()[1] for name, server in zip(names, free, strict=True)}


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node 30 s to start, and a raylet half of that to its helper, come what may. A loaded machine may need
    longer: the clock goes slower, the port that the raylet waits to be told is there before it looks, and a node that
    says nothing for a minute or two is not given up."""
    slow = SimpleNamespace(**vars(time))
    slow.monotonic = lambda: time.monotonic() / _SLOWER
    plain = ray._private.services.start_raylet

    def start_raylet(*given: Any, **named: Any) -> Any:
        call = inspect.signature(plain).bind(*given, **named).arguments
        port = Path(call["session_dir"], f"dashboard_agent_listen_port_{call['node_id']}")
        port.write_text(str(call["dashboard_agent_listen_port"]))
        return plain(*given, **named)

    there = descendants()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_health_check_timeout_ms", "60000")
        patch.setattr("ray._private.node.time", slow)
        patch.setattr("ray._private.services.start_raylet", start_raylet)
        # As if ray[default] were missing: its helpers take a second of CPU more for each node.
        patch.setattr("ray._private.utils.get_dashboard_dependency_error", lambda: ImportError("not wanted"))
        try:
            return start()
        except BaseException:
            end(started_since(there))
            raise


def descendants() -> set[int]:
    """The living processes below this one, which is the parent of their orphans too."""
    found, todo = set[int](), [os.getpid()]
    while todo:
        for path in glob.glob(f"/proc/{todo.pop()}/task/*/children"):
            with suppress(OSError):
                below = {int(pid) for pid in Path(path).read_text().split()} - found
                found |= below
                todo.extend(below)
    return {pid for pid in found if processes.state(pid) not in ("", "Z", "X")}


def started_since(before: set[int]) -> set[int]:
    """But the S3 server that later tests use too: it starts with the first test that needs it."""
    return descendants() - before - SERVING


def end(pids: Iterable[int]) -> None:
    """What Ray started and left behind."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def name_of(ray_id: str) -> str:
    """Empty for a node that is gone, such as one that was drained."""
    from holdfast.engine.ray.ray_nodes import look

    node = look().get(ray_id)
    return "" if node is None else node.name


def left_over() -> list[str]:
    """Actors, placement groups and processes of ours."""
    return known_to_ray() + [f"process {pid} {name}" for pid, name in our_processes()]


def known_to_ray() -> list[str]:
    """Actors and placement groups of ours, whoever has made them: each driver has a namespace of its own."""
    names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    actors = [f"actor {name}" for name in names if name.startswith("holdfast")]
    groups = [
        f"placement group {group['name']}" for group in placement_group_table().values() if group["state"] != "REMOVED"
    ]
    return actors + groups


def our_processes() -> Iterator[tuple[int, str]]:
    """Agents, zygotes and workers, of this test or of any process below it; and actors that have outlived their raylet.
    As long as there is one, it is Ray that ends them, and ``known_to_ray`` that counts them."""
    mine = f"HOLDFAST_TEST_RUN={os.environ['HOLDFAST_TEST_RUN']}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name, (state, parent) = _name_of(pid), _state_of(pid)
            ours = name.startswith("hf-") or (name == _ACTOR and _name_of(parent) != "raylet")
            if ours and state != "Z" and mine in Path(f"/proc/{pid}/environ").read_bytes():
                yield int(pid), name
        except OSError:
            continue


def _name_of(pid: str) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _state_of(pid: str) -> tuple[str, str]:
    """And its parent."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, parent


class RayScene(Scene):
    """A run on the cluster, and what a test does meanwhile."""

    def __init__(self, home: Path, machines: Machines) -> None:
        super().__init__(home, "ray")  # type: ignore[arg-type]
        self.machines = machines

    @contextmanager
    def meanwhile(self, act: Callable[[], None]) -> Iterator[None]:
        """As the other; a run whose test went wrong ends because it has seen enough."""

        def acting() -> None:
            try:
                act()
            finally:
                self.enough()

        with super().meanwhile(acting):
            yield

    def pid_of(self, rank: int) -> int:
        """Of the newest worker with that rank."""
        return int([pid for other, _, _, pid in self.notes("start") if other == rank][-1])

    def trainer(self, workers: int | tuple[int, int], fn: Any = cluster_job.train_fn, **options: Any) -> Any:  # type: ignore[override]
        return super().trainer(workers, fn, **options)

    def kill_worker(self, rank: int) -> None:
        os.kill(self.pid_of(rank), signal.SIGKILL)

    def node_of(self, rank: int) -> str:
        """Ray's id of the node that the newest worker with that rank is on."""
        name = [name for other, name in self.notes("node") if other == rank][-1]
        return next(id for id in self.machines.nodes if name_of(id) == name)


__all__ = ["Machines", "RayScene", "known_to_ray", "left_over", "name_of", "our_processes", "wait_until"]

if __name__ == "__main__":
    ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
    print(json.dumps(known_to_ray()))
