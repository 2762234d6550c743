"""Drivers that are tasks or actors of Ray's themselves."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from support.ray_clusters.ray_machines import Machines, left_over, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
WITHIN_S = 240.0


def drive(home: str, resource: str) -> Any:
    """A run that ends when the test says so, and notes its driver. By value, as nodes do not have this module."""
    import holdfast.train as train

    def loop(config: dict[str, str]) -> None:
        Path(config["home"], "begun").touch()
        while not Path(config["home"], "enough").exists():
            time.sleep(0.05)
        train.report({"done": 1})

    Path(home, "driver").write_text(str(os.getpid()))
    trainer = train.DataParallelTrainer(
        loop,
        train_loop_config={"home": home},
        scaling_config=train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1, resource: 1}),
        run_config=train.RunConfig(name="run", storage_path=home, engine="ray", verbose=0),
    )
    return trainer.fit().metrics


@pytest.fixture(autouse=True)
def by_value() -> None:
    ray.cloudpickle.register_pickle_by_value(__import__(__name__))


@pytest.mark.parametrize("threaded", [False, True])
def test_an_actor_can_be_a_driver(threaded: bool, machines: Machines, tmp_path: Path) -> None:
    machines.add(1, resources={f"actor-{threaded}": 1})
    (tmp_path / "enough").touch()

    class Driver:
        def drive(self, home: str, resource: str) -> Any:
            return drive(home, resource)

    actor = ray.remote(Driver).options(num_cpus=0, max_concurrency=2 if threaded else 1).remote()
    found = ray.get(actor.drive.remote(str(tmp_path), f"actor-{threaded}"), timeout=WITHIN_S)
    assert found == {"done": 1}
    ray.kill(actor)


def test_a_task_that_drives_is_killed_and_ray_runs_it_again(machines: Machines, tmp_path: Path) -> None:
    """There is room for one of the two. Ray keeps what the first one had reserved until the job ends."""
    machines.add(1, resources={"task": 1})
    driven = ray.remote(num_cpus=0, max_retries=1)(drive).remote(str(tmp_path), "task")
    wait_until((tmp_path / "begun").exists, "the first driver's worker")
    os.kill(int((tmp_path / "driver").read_text()), signal.SIGKILL)
    (tmp_path / "enough").touch()
    assert ray.get(driven, timeout=WITHIN_S) == {"done": 1}
    wait_until(lambda: not left_over(), "the end of all that the run had")
