"""In the jobs of ray_engine.py: the nodes of a Ray cluster, for Holdfast and for Ray Train alike.

Workers import this module to say where they are. Those of Holdfast have no need of Ray, and do not import it here.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

SMALL = {"object_store_memory": 100 << 20}


class RayNodes:
    """Raylets with one CPU each; the head has no room for workers. When all are there is written down."""

    run_options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, count: int) -> None:
        import ray
        import ray._private.utils
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
        for _ in range(count):
            self.add()
        ray._private.utils.set_sigterm_handler = lambda _handler: None  # later nodes are added in another thread
        ray.init(address=self._cluster.address, log_to_driver=False)
        Path("up").write_text(str(time.monotonic()))

    def add(self) -> None:
        self._cluster.add_node(num_cpus=1, **SMALL)

    def kill(self, name: str) -> None:
        """Either a node's name, which ends with the end of Ray's id, or that id."""
        of = {node.node_id: node for node in self._cluster.list_all_nodes()}
        found = next(node for id, node in of.items() if id[-8:] == name[-8:])
        self._cluster.remove_node(found, allow_graceful=False)


class HoldfastNodes(RayNodes):
    run_options = {"engine": "ray"}  # noqa: RUF012


class HoldfastNodesWithReserve(HoldfastNodes):
    def __init__(self, count: int) -> None:
        os.environ["HOLDFAST_STANDBY_NODES"] = "1"
        super().__init__(count)


def here() -> str:
    """In a worker: the node that it is on, as a name without a dash, and its process."""
    try:
        from holdfast.worker import session

        return f"{os.getpid()}.{session.current().node_id.rpartition('-')[2]}"
    except RuntimeError:
        import ray

        return f"{os.getpid()}.{ray.get_runtime_context().get_node_id()}"
