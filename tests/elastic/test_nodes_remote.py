"""Nodes that come and go while the run is stored far away: each brings what its own workers saved."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_job import Scene

import holdfast.train as train
from holdfast.driver.history import load
from holdfast.store.location import Location
from holdfast.store.remote import journal

sys.path.append(str(Path(__file__).parents[1] / "objects"))

from servers import S3Server, s3_server  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def far(scene: Scene, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Its storage is a bucket."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    scene.storage = f"s3://{server.make_bucket()}/runs"
    return scene
