"""A cluster and a run on it for each test, and an S3 server for the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from support.elastic.elastic_job import Scene
from support.object_stores.fixtures import bucket, obstore_is_running, s3  # noqa: F401


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with holdfast.LocalCluster() as cluster:
        yield Scene(tmp_path, cluster)
