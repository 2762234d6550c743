"""Fixtures: servers that live for the session; obstore's own threads start before a test counts what it left open."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from support.object_stores.proxy import FaultProxy
from support.object_stores.servers import S3Server, s3_server, unconditional_s3_server


@pytest.fixture(scope="session", autouse=True)
def obstore_is_running() -> None:
    obstore.put(MemoryStore(), "warm", b"")


@pytest.fixture(autouse=True)
def a_broken_connection_is_an_error() -> Iterator[None]:
    """And not the silent end of the process that runs the tests: the proxies write to drivers that are killed."""
    yield
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN, "run the command line in a process of its own"


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def unconditional_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    directory: Path = tmp_path_factory.mktemp("rclone")
    with unconditional_s3_server(directory) as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An s3:// URL, reached as a user's environment would have it; nodes keep their files in the test's directory."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    return f"s3://{s3.make_bucket()}/runs"


@pytest.fixture
def proxy(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    assert bucket  # made before its server is hidden behind the proxy
    with FaultProxy(s3.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def marks(tmp_path: Path) -> str:
    (tmp_path / "marks").mkdir()
    return str(tmp_path / "marks")
