"""Places in memory and on a real S3 server, reached as a user's environment would have it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli.cli_shell import end_all
from support.object_stores.servers import S3Server


@pytest.fixture(autouse=True)
def ends_what_it_started() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture
def bucket(s3: S3Server, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket of its own."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(temporary / "scratch"))
    return f"s3://{s3.make_bucket()}"


@pytest.fixture(params=["memory", "s3"])
def place(request: pytest.FixtureRequest, bucket: str) -> str:
    """The URL of a place that nothing is in."""
    return f"memory://{uuid.uuid4().hex}/runs" if request.param == "memory" else f"{bucket}/runs"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own for temporary files, so that what is left there is seen."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory
