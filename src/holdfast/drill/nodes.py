"""Faults of whole nodes, on a cluster of logical nodes: the script's own, or one in the place of the local engine."""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import Protocol

from holdfast.drill.faults import KINDS, Fault
from holdfast.drill.stage import Stage
from holdfast.driver.plan import Plan
from holdfast.engine.engine_interface import Engine
from holdfast.engine.local.agent_process import Network
from holdfast.engine.local.local_cluster import LocalCluster

OF_NODES = tuple(name for name, kind in KINDS.items() if kind.where == "nodes")
_LOOPBACK = "127.0.0.1"


class Nodes(Protocol):
    """The actions on nodes of a run. Each may take a long time."""

    def kill(self, node: str) -> None: ...
    def drain(self, node: str, seconds: float) -> None: ...
    def cut(self, node: str) -> None: ...


@dataclass(frozen=True)
class Ground:
    """The nodes of a run in a drill."""

    engine: Engine
    nodes: Nodes | None = None
    cannot: dict[str, str] = field(default_factory=dict)  # the faults that are impossible there, with the reason


def ground(engine: Engine, plan: Plan, stage: Stage) -> Ground:
    """On this machine: two nodes that fit all workers and a spare node, each behind a proxy that can be cut, if the
    fault is a node fault and the script has no nodes itself."""
    if not isinstance(engine, LocalCluster) or plan.gpus_per_worker:
        return Ground(engine, None, dict.fromkeys(OF_NODES, "the run's nodes are not logical ones, or have GPUs"))
    fault = stage.fault
    if fault is None or fault.name not in OF_NODES:
        return Ground(engine)
    if engine.grows:
        if fault.name == "partition":
            _let_be_cut(engine, stage)
        return Ground(engine, LocalNodes(engine, stage))
    workers, cluster = plan.spec.num_workers, LocalCluster()
    cpus = max(1.0, math.ceil(workers / 2) * plan.cpus_per_worker)
    for number in range(1, 3 if workers == 1 else 4):
        name = f"drill-{number}"
        cluster.add_node(cpus=cpus, node_id=name, network=_through(stage, name) if fault.name == "partition" else None)
    return Ground(cluster, LocalNodes(cluster, stage))


def _through(stage: Stage, node: str) -> Network:
    """The proxy between an agent and its driver, which can be cut."""
    command = (sys.executable, "-m", "holdfast.drill.cut", str(stage.cut_file(node)))
    return Network(command, _LOOPBACK, _LOOPBACK)


def _let_be_cut(cluster: LocalCluster, stage: Stage) -> None:
    """The nodes of the script's own cluster, before any agent is started there."""
    with cluster._lock:
        for node in cluster.nodes:
            cluster._nodes[node.id] = replace(node, network=node.network or _through(stage, node.id))


def strike(fault: Fault, nodes: Nodes, node: str) -> None:
    """In a thread: removing a node takes time, and the caller may be the one that must see it happen."""

    def act() -> None:
        match fault.name:
            case "node-kill":
                nodes.kill(node)
            case "drain":
                nodes.drain(node, fault.seconds)
            case "partition":
                nodes.cut(node)

    threading.Thread(target=act, name="holdfast-drill", daemon=True).start()


class LocalNodes:
    def __init__(self, cluster: LocalCluster, stage: Stage) -> None:
        self._cluster, self._stage = cluster, stage

    def kill(self, node: str) -> None:
        self._replace(node)
        self._cluster.remove_node(node)

    def drain(self, node: str, seconds: float) -> None:
        self._replace(node)
        self._cluster.drain_node(node, seconds)

    def cut(self, node: str) -> None:
        self._replace(node)
        self._stage.cut_file(node).touch()

    def _replace(self, node: str) -> None:
        """A node of the same kind joins the script's own cluster, as a cluster manager would do; ours has a spare
        node."""
        (lost,) = (one for one in self._cluster.nodes if one.id == node)
        if not node.startswith("drill-"):
            self._cluster.add_node(cpus=lost.cpus, gpus=lost.gpus, labels=lost.labels)
