"""Faults of whole nodes, on a cluster of logical nodes: the script's own, or one in the place of the local engine."""

from __future__ import annotations

import math
import sys
import threading
from dataclasses import replace

from holdfast.drill.faults import Fault
from holdfast.drill.stage import Stage
from holdfast.driver.plan import Plan
from holdfast.engine.agent_process import Network
from holdfast.engine.base import Engine
from holdfast.engine.cluster import LocalCluster

_LOOPBACK = "127.0.0.1"


def cluster_for(engine: Engine, plan: Plan, stage: Stage) -> LocalCluster | None:
    """Two nodes with room for all workers and one in reserve, each reached through something that can be cut."""
    if not isinstance(engine, LocalCluster):
        return None
    is_cut = stage.fault is not None and stage.fault.name == "partition"
    if engine.grows:
        if is_cut:
            _let_be_cut(engine, stage)
        return engine
    workers, cluster = plan.spec.num_workers, LocalCluster()
    cpus = max(1.0, math.ceil(workers / 2) * plan.cpus_per_worker)
    for number in range(1, 3 if workers == 1 else 4):
        name = f"drill-{number}"
        cluster.add_node(cpus=cpus, node_id=name, network=_through(stage, name) if is_cut else None)
    return cluster


def _through(stage: Stage, node: str) -> Network:
    """What stands between an agent and its driver, and can be cut."""
    command = (sys.executable, "-m", "holdfast.drill.cut", str(stage.cut_file(node)))
    return Network(command, _LOOPBACK, _LOOPBACK)


def _let_be_cut(cluster: LocalCluster, stage: Stage) -> None:
    """The nodes of the script's own cluster, before any agent is started there."""
    with cluster._lock:
        for node in cluster.nodes:
            cluster._nodes[node.id] = replace(node, network=node.network or _through(stage, node.id))


def strike(fault: Fault, stage: Stage, cluster: LocalCluster, node: str) -> None:
    """In a thread: a node that is removed is waited for, and the caller may be the one that hears it."""
    act = {"node-kill": _kill, "drain": _drain, "partition": _cut}[fault.name]
    threading.Thread(target=act, args=(fault, stage, cluster, node), name="holdfast-drill", daemon=True).start()


def _kill(_fault: Fault, _stage: Stage, cluster: LocalCluster, node: str) -> None:
    _replace(cluster, node)
    cluster.remove_node(node)


def _drain(fault: Fault, _stage: Stage, cluster: LocalCluster, node: str) -> None:
    _replace(cluster, node)
    cluster.drain_node(node, fault.seconds)


def _cut(_fault: Fault, stage: Stage, cluster: LocalCluster, node: str) -> None:
    _replace(cluster, node)
    stage.cut_file(node).touch()


def _replace(cluster: LocalCluster, node: str) -> None:
    """A node of the same kind joins the script's own cluster, as whoever runs clusters sees to; ours has a reserve."""
    (lost,) = (one for one in cluster.nodes if one.id == node)
    if not node.startswith("drill-"):
        cluster.add_node(cpus=lost.cpus, gpus=lost.gpus, labels=lost.labels)
