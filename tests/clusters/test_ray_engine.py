"""Runs on a real Ray cluster of several nodes on this machine, which lose workers and nodes, and are given new ones."""

from __future__ import annotations

import pytest
from ray_machines import Machines, RayScene

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_killed_worker_comes_back(machines: Machines, scene: RayScene) -> None:
    machines.top_up(2)

    def act() -> None:
        scene.await_steps(3, world=2)
        scene.kill_worker(1)
        scene.await_record("GroupStarted", 2)
        scene.await_steps(3, world=2)

    with scene.meanwhile(act):
        result = scene.trainer(2, max_failures=1).fit()
    scene.check(result)
    assert scene.kinds() == ["crash"]
    assert scene.worlds() == [2, 2]
