"""A Ray cluster of several raylets on this machine, and what a test does to its nodes."""

from __future__ import annotations

import glob
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

sys.path.append(str(Path(__file__).parents[1] / "elastic"))
import cluster_job
from elastic_job import Scene, wait_until

PATIENCE_S = 90.0
_STARTS = 4
HEAD = {"num_cpus": 0, "include_dashboard": False}


class Machines:
    """The head has no room for workers; each other node is a raylet of its own."""

    def __init__(self) -> None:
        self._before = descendants()
        self._cluster = self._patiently(lambda: Cluster(True, head_node_args=HEAD, shutdown_at_exit=False))
        ray.init(address=self._cluster.address, logging_level="ERROR", log_to_driver=False)
        self.nodes: dict[str, Any] = {}  # by Ray's id

    def _patiently(self, start: Callable[[], Any]) -> Any:
        """Ray gives up on a node that is not there in 30 s, which a loaded machine may need."""
        for _ in range(_STARTS - 1):
            there = descendants()
            try:
                return start()
            except Exception as error:
                print(f"once more, as a node of Ray did not start: {error}")
                end(descendants() - there)
        return start()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, cpus: float = 1, **options: Any) -> str:
        node = self._patiently(lambda: self._cluster.add_node(num_cpus=cpus, **options))
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

    def drain(self, id: str, deadline_s: float) -> None:
        """A notice that the machine will be taken away."""
        preemption = 2
        gcs = ray._private.worker.global_worker.gcs_client
        accepted, why = gcs.drain_node(id, preemption, "a test", int((time.time() + deadline_s) * 1000))
        assert accepted, why

    def top_up(self, count: int) -> list[str]:
        """Have so many nodes with one CPU each; tests leave others behind."""
        while len(self.nodes) < count:
            self.add()
        return list(self.nodes)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()
        end(descendants() - self._before)


def descendants() -> set[int]:
    """The processes below this one, which is the parent of their orphans too."""
    found, todo = set[int](), [os.getpid()]
    while todo:
        for path in glob.glob(f"/proc/{todo.pop()}/task/*/children"):
            with suppress(OSError):
                below = {int(pid) for pid in Path(path).read_text().split()} - found
                found |= below
                todo.extend(below)
    return found


def end(pids: Iterable[int]) -> None:
    """What Ray started and left behind."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def name_of(ray_id: str) -> str:
    from holdfast.engine.ray.nodes import look

    return look()[ray_id].name


def left_over() -> list[str]:
    """Actors, placement groups and processes of ours."""
    actors = [f"actor {name}" for name in ray.util.list_named_actors() if name.startswith("holdfast")]
    groups = [
        f"placement group {group['name']}" for group in placement_group_table().values() if group["state"] != "REMOVED"
    ]
    return actors + groups + [f"process {pid} {name}" for pid, name in our_processes()]


def our_processes() -> Iterator[tuple[int, str]]:
    """Agents, zygotes and workers, of this test or of any process below it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            mine = f"HOLDFAST_TEST_RUN={os.environ['HOLDFAST_TEST_RUN']}".encode()
            if name.startswith("hf-") and state != "Z" and mine in Path(f"/proc/{pid}/environ").read_bytes():
                yield int(pid), name
        except OSError:
            continue


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


__all__ = ["Machines", "RayScene", "left_over", "name_of", "our_processes", "wait_until"]
