"""A run of a drill on Ray: on the drill's own cluster, or on one that others use too. Nodes are removed only from the
drill's own cluster. The connection between a driver and its agent belongs to the run on any cluster, so it may be cut.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from holdfast import settings
from holdfast.drill.cut import pass_on
from holdfast.drill.nodes import Ground
from holdfast.drill.stage import NodeShape, Stage
from holdfast.driver.plan import Plan
from holdfast.engine.demand import Demand
from holdfast.engine.ray.connection import cluster_address, ray_module
from holdfast.engine.ray.ray_agent import NodeUnusableError, RayAgent
from holdfast.engine.ray.ray_engine import RayEngine
from holdfast.node.handshake import AgentListener

TAKING_NODES = ("node-kill", "drain")
_PREEMPTION = 2  # Ray's number of that reason
_OTHERS_TOO = (
    "other jobs may use the nodes of this Ray cluster. Unset RAY_ADDRESS, and remove the address from the script, "
    "to let the drill start its own cluster on this machine"
)
_WITH_GPUS = "with GPUs, the drill's own cluster has only one node"


def refuse(faults: Iterable[str]) -> None:
    """Rejects faults that the user named and the environment rules out, before anything is run."""
    for name in faults:
        if name in TAKING_NODES and settings.load().engine == "ray" and os.environ.get("RAY_ADDRESS"):
            raise ValueError(f"{name}: {_OTHERS_TOO}")


def ground(engine: RayEngine, plan: Plan, stage: Stage) -> Ground:
    """Called when the script is connected."""
    if stage.fault is not None and stage.fault.name == "partition":
        _let_be_cut(stage)
    if not stage.cluster_address or stage.cluster_address != cluster_address():
        return Ground(engine, RayNodes(stage), dict.fromkeys(TAKING_NODES, _OTHERS_TOO))
    stage.ask_for_nodes(shape_of(engine.demand, 1 if plan.shards is not None else 0))
    return Ground(engine, RayNodes(stage), dict.fromkeys(TAKING_NODES, _WITH_GPUS) if engine.demand.gpus else {})


def shape_of(demand: Demand, more: int = 0) -> NodeShape:
    """Nodes that fit all workers, and a spare node. As with the local engine, two nodes are for the workers, unless
    their strategy says otherwise. ``more``: nodes for other users of CPUs."""
    seats = math.ceil(demand.most / 2)
    if demand.strategy == "STRICT_SPREAD":
        seats = 1
    elif demand.strategy == "STRICT_PACK" or demand.gpus:
        seats = demand.most
    count = 1 if demand.gpus else math.ceil(demand.most / seats) + 1
    resources = {name: amount * seats for name, amount in demand.resources.items()}
    return NodeShape(count + more, resources, _labels(demand))


def _labels(demand: Demand) -> dict[str, str]:
    """The labels that all workers find on any of the nodes."""
    found: dict[str, str] = {}
    for selector in demand.labels:
        for name, wanted in selector.items():
            if wanted.startswith("!"):
                continue
            value = wanted.removeprefix("in(").removesuffix(")").split(",")[0].strip()
            if name.startswith("ray.io/") or found.setdefault(name, value) != value:
                raise ValueError(
                    f"ScalingConfig(label_selector=...): the drill's own cluster cannot have nodes for {selector}; "
                    "set RAY_ADDRESS to another cluster"
                )
    return found


def explained(error: Any, stage: Stage) -> Any:
    """Whatever storage the script names, a drill has its own."""
    if isinstance(error, NodeUnusableError) and str(stage.directory) in str(error):
        node = str(error).partition(" ")[0]
        return NodeUnusableError(
            f"{node} does not see the directory of the drill: use holdfast drill --keep DIR with a directory that all "
            "nodes share"
        )
    return error


class RayNodes:
    """By our names of them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def kill(self, node: str) -> None:
        self._stage.ask_to_go(self._known(node)["NodeName"], time.time())

    def drain(self, node: str, seconds: float) -> None:
        known, until = self._known(node), time.time() + seconds
        gcs = ray_module()._private.worker.global_worker.gcs_client
        accepted, why = gcs.drain_node(known["NodeID"], _PREEMPTION, "holdfast drill", int(until * 1000))
        if not accepted:
            raise RuntimeError(f"holdfast drill: Ray does not drain {node}: {why}")
        self._stage.ask_to_go(known["NodeName"], until)

    def cut(self, node: str) -> None:
        self._stage.cut_file(node).touch()

    def _known(self, node: str) -> dict[str, Any]:
        """Ray's description of the node."""
        return next(known for known in ray_module().nodes() if known["Alive"] and node.endswith(known["NodeID"][-8:]))


def _let_be_cut(stage: Stage) -> None:
    def open_door(agent: RayAgent, plain: Callable[[RayAgent], AgentListener] = RayAgent._open_door) -> AgentListener:
        return _between(plain(agent), stage.cut_file(agent._node_id))

    setattr(RayAgent, "_open_door", open_door)  # noqa: B010


def _between(door: AgentListener, cut: Path) -> AgentListener:
    """The agent connects to us instead, and we connect to the driver for it. When ``cut`` appears, nothing is
    forwarded, and both ends keep running; if it exists from the start, it belonged to another agent."""
    is_old, behind = cut.exists(), (door.host, door.port)
    listener = socket.create_server((door.host, 0), family=socket.AF_INET6 if ":" in door.host else socket.AF_INET)
    door.port = int(listener.getsockname()[1])

    def serve() -> None:
        with contextlib.suppress(OSError), listener:
            ours, _ = listener.accept()
            theirs = socket.create_connection(behind)
            if pass_on(ours, theirs, lambda: not is_old and cut.exists()):
                threading.Event().wait()  # with both open
            ours.close()
            theirs.close()

    threading.Thread(target=serve, name="holdfast-drill", daemon=True).start()
    return door
