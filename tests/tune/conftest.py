"""A real S3 server for experiments that are stored there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servers import S3Server

sys.path.append(str(Path(__file__).resolve().parent.parent / "objects"))  # the servers that the tests there use


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    import obstore
    from obstore.store import MemoryStore
    from servers import s3_server

    obstore.put(MemoryStore(), "warm", b"")  # its threads stay, and are no test's
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a bucket of its own."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_SCRATCH_DIR", str(tmp_path / "scratch"))
    return f"s3://{s3.make_bucket()}"
