"""One cluster for each file of tests; every test ends by checking that nothing of ours is left on it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["HOLDFAST_TEST_RUN"] = str(os.getpid())  # by which our processes are known, wherever Ray puts them
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import pytest

from support.ray_clusters.ray_machines import Machines, RayScene, left_over

LEFT_WITHIN_S = 120.0  # Ray may need half a minute to notice that a node is gone, and what was on it


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    machines = Machines()
    yield machines
    machines.close()


@pytest.fixture
def scene(tmp_path: Path, machines: Machines) -> RayScene:
    return RayScene(tmp_path, machines)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ray's own processes and threads come and go as it likes; ours must not stay."""
    yield
    deadline = time.monotonic() + LEFT_WITHIN_S
    while left := [*threads(), *(left_over() if "machines" in request.fixturenames else [])]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def threads() -> list[str]:
    return [f"thread {thread.name}" for thread in threading.enumerate() if thread.name.startswith("holdfast")]
