"""Runs that were made once by real jobs, and a copy of one for each test that damages it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli.cli_shell import end_all, finish_job, start_job, wait_for_checkpoint
from support.repository import GOLDEN_RUN


@pytest.fixture(autouse=True)
def ends_what_it_started() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs: finished (after one failure), failed, stopped and killed. Only to look at."""
    storage = tmp_path_factory.mktemp("storage")
    finish_job(start_job(storage, "finished", raise_at=2, max_failures=1))
    (storage / "raised-2").unlink()
    finish_job(start_job(storage, "failed", raise_at=2), code=1)
    for name, number in (("stopped", signal.SIGTERM), ("killed", signal.SIGKILL)):
        process = start_job(storage, name, wait_at=3)
        wait_for_checkpoint(storage, 3, name)
        process.send_signal(number)
        process.communicate(timeout=60)
    return storage


@pytest.fixture
def finished(storage: Path, tmp_path: Path) -> Path:
    """A run of 5 steps whose rank 1 failed at the second; the last four checkpoints were kept."""
    shutil.copytree(storage / "finished", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """The run of 0.1 that the compatibility tests keep."""
    shutil.copytree(GOLDEN_RUN, tmp_path / "run-0.1")
    return tmp_path / "run-0.1"
