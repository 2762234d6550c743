"""Nodes of Ray's own test cluster, each a raylet with its processes; the head has no room for workers."""

from __future__ import annotations

from typing import Any

import ray
import ray._private.utils
from ray.cluster_utils import Cluster

_SMALL = {"object_store_memory": 100 << 20}


class Nodes:
    def __init__(self, count: int) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **_SMALL})
        self.run_options: dict[str, Any] = {}
        for _ in range(count):
            self.add()
        ray._private.utils.set_sigterm_handler = lambda _handler: None  # later nodes are added in another thread
        ray.init(address=self._cluster.address, log_to_driver=False)

    def add(self) -> None:
        self._cluster.add_node(num_cpus=1, **_SMALL)

    def kill(self, node: str) -> None:
        found = next(known for known in self._cluster.list_all_nodes() if known.node_id == node)
        self._cluster.remove_node(found, allow_graceful=False)


def here() -> str:
    """The node that a worker is on."""
    return str(ray.get_runtime_context().get_node_id())
