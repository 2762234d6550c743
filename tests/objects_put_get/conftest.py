"""Each test begins and ends without a session, and leaves no object behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.wire.objects import refs, session


def left() -> set[Path]:
    return {path for root in session._roots() if root.is_dir() for path in root.iterdir() if _is_ours(path)}


def _is_ours(path: Path) -> bool:
    return int(path.name.split("-")[1]) == os.getpid() or not session._lives(path.name)


@pytest.fixture(autouse=True)
def _no_session_is_left() -> Iterator[None]:
    session.sweep()
    refs.close()
    yield
    refs.close()
    assert left() == set()
