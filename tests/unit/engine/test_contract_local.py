"""The engines of this machine keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from holdfast.engine.local.local_cluster import LocalCluster
from holdfast.engine.local.local_engine import LocalEngine
from holdfast.testing.engine_contract import ClusterContract, EngineContract


class LocalLab:
    def __init__(self, cluster: LocalCluster) -> None:
        self.engine = cluster
        for _ in range(2):
            cluster.add_node()

    def kill(self, node: str) -> None:
        self.engine.remove_node(node)

    def drain(self, node: str, deadline_s: float) -> None:
        self.engine.drain_node(node, deadline_s)


class TestLocalCluster(ClusterContract):
    @pytest.fixture
    def lab(self) -> Iterator[LocalLab]:
        with LocalCluster() as cluster:
            yield LocalLab(cluster)


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def lab(self) -> SimpleNamespace:
        return SimpleNamespace(engine=LocalEngine())
