"""Nodes of a LocalCluster."""

from __future__ import annotations

from typing import Any

import holdfast


class Nodes:
    def __init__(self, count: int) -> None:
        self._cluster = holdfast.LocalCluster()
        self.run_options: dict[str, Any] = {"engine": self._cluster}
        for _ in range(count):
            self.add()

    def add(self) -> None:
        self._cluster.add_node(cpus=1)

    def kill(self, node: str) -> None:
        self._cluster.remove_node(node)


def here() -> str:
    """The node that a worker is on."""
    from holdfast.worker import session

    return session.current().node_id
