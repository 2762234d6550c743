"""What running a page needs: a directory of its own, and an S3 server where it says so."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

BUCKET = "bucket"


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    """What a process needs to reach a server with a bucket of that name."""
    from support.object_stores.servers import s3_server

    with s3_server() as server:
        request = urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT")  # moto checks no signature
        with urllib.request.urlopen(request, timeout=30):
            pass
        yield server.environment


@pytest.fixture
def page_environment(tmp_path: Path) -> dict[str, str]:
    """That of a new user: an empty home, nothing set, and the commands of this environment on the path."""
    home, temp = tmp_path / "home", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "AWS_", "RAY_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "HOME": str(home), "TMPDIR": str(temp), "PATH": path, "PYTHONUNBUFFERED": "1"}
