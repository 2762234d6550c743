"""A cluster and a run on it for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from support.elastic.elastic_job import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with holdfast.LocalCluster() as cluster:
        yield Scene(tmp_path, cluster)
