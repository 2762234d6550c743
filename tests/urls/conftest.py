"""Places in memory and on a real S3 server, reached as a user's environment would have it."""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servers import S3Server

for neighbour in ("objects", "cli"):  # the servers, the proxy and the shell that the tests there use too
    sys.path.append(str(Path(__file__).resolve().parent.parent / neighbour))


@pytest.fixture(scope="session", autouse=True)
def obstore_is_running() -> None:
    """Its threads stay, and are no test's."""
    import obstore
    from obstore.store import MemoryStore

    obstore.put(MemoryStore(), "warm", b"")


@pytest.fixture(autouse=True)
def ends_what_it_started() -> Iterator[None]:
    from cli_shell import end_all

    yield
    end_all()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    from servers import s3_server

    with s3_server() as server:
        yield server


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
