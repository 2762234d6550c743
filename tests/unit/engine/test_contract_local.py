"""The embedded engine keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.engine.local.local_cluster import LocalCluster
from support.ray_clusters.engine_contract import EngineContract


class LocalLab:
    def __init__(self, cluster: LocalCluster) -> None:
        self.engine = cluster
        for _ in range(2):
            cluster.add_node()

    def kill(self, node: str) -> None:
        self.engine.remove_node(node)

    def drain(self, node: str, deadline_s: float) -> None:
        self.engine.drain_node(node, deadline_s)


class TestLocalCluster(EngineContract):
    @pytest.fixture
    def lab(self) -> Iterator[LocalLab]:
        with LocalCluster() as cluster:
            yield LocalLab(cluster)
