"""The living nodes of the cluster, as Ray knows them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holdfast.engine.ray.connection import LeftClusterError, connected_ray


@dataclass(frozen=True)
class RayNode:
    id: str  # Ray's
    address: str
    labels: dict[str, str]
    resources: dict[str, float]
    drain_by: float | None  # in UNIX seconds; 0 for some day; None if it stays

    @property
    def name(self) -> str:
        """What we call it: the machine and the end of the id, as a name that a directory can have. A provider that
        makes up the ids may begin all of them alike."""
        return f"{re.sub(r'[^A-Za-z0-9._-]', '-', self.address)}-{self.id[-8:]}"


def look() -> dict[str, RayNode]:
    ray = connected_ray()
    draining: dict[str, int] = ray._private.state.state.get_draining_nodes()  # there is no public way to ask
    nodes, own = ray.nodes(), ray.get_runtime_context().get_node_id()
    if any(node["NodeID"] == own and not node["Alive"] for node in nodes):
        raise LeftClusterError(
            "Ray has lost the node of this script, and the script's resources with it. Run the script again to "
            "resume from the last checkpoint"
        )
    return {node["NodeID"]: _node(node, draining) for node in nodes if node["Alive"]}


def _node(node: dict[str, Any], draining: dict[str, int]) -> RayNode:
    deadline_ms = draining.get(node["NodeID"])
    return RayNode(
        id=node["NodeID"],
        address=node["NodeManagerAddress"],
        labels=dict(node.get("Labels") or {}),
        resources=dict(node["Resources"]),
        drain_by=None if deadline_ms is None else deadline_ms / 1000,
    )
