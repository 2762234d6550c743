from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.layout import RunLayout


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    return RunLayout(tmp_path / "storage" / "run")


@pytest.fixture(autouse=True)
def _no_leaks(tmp_path: Path) -> Iterator[None]:
    """Threads are seen to for all tests: some of the drivers of runs on object stores end a moment after a run."""
    yield
    assert [name for name in _open_files() if name.startswith(str(tmp_path))] == []


def _open_files() -> list[str]:
    directory = "/proc/self/fd"
    if not os.path.isdir(directory):
        return []
    names = []
    for fd in os.listdir(directory):
        try:
            names.append(os.readlink(f"{directory}/{fd}"))
        except FileNotFoundError:  # the handle of the listing itself
            continue
    return names
