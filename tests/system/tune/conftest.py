"""A real S3 server for experiments that are stored there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import objects
from support.object_stores.fixtures import obstore_is_running, s3  # noqa: F401
from support.object_stores.servers import S3Server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    """The URL of a bucket of its own."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    return f"s3://{s3.make_bucket()}"


@pytest.fixture(autouse=True)
def _no_objects_are_left() -> Iterator[None]:
    yield
    objects.close()
