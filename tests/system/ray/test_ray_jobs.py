"""``ray job submit`` of the same command resumes the run, and Ray's dashboard knows our actors by name."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from support.ray_clusters import cut_off_job
from support.ray_clusters.ray_hosts import RAY, Host, hosts
from support.ray_clusters.ray_machines import our_processes, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
]
DASHBOARD = "http://127.0.0.1:8265"


def command_of(home: Path) -> tuple[str, ...]:
    return (sys.executable, cut_off_job.__file__, str(home))


def submission(home: Path) -> tuple[str, ...]:
    return (RAY, "job", "submit", f"--address={DASHBOARD}", "--", *command_of(home))


def driver_of(home: Path) -> int:
    """The process that the job server has started."""
    wanted = "\0".join((*command_of(home), ""))
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{pid}/cmdline").read_text() == wanted:
                return int(pid)
        except OSError:
            continue
    raise AssertionError("there is no driver")


def actors(head: Host) -> list[dict[str, str]]:
    """Of ours, those that live."""
    found: list[dict[str, str]] = json.loads(head.run(RAY, "list", "actors", f"--address={DASHBOARD}", "--format=json"))
    return [actor for actor in found if actor["name"].startswith("holdfast") and actor["state"] != "DEAD"]


def test_the_same_submission_goes_on_with_a_run_whose_driver_was_killed(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    with hosts(3, tmp_path) as (head, *nodes):
        head.start_head("--include-dashboard=true")
        for node in nodes:
            node.join(head, "--num-cpus=1")
        first = head.start(*submission(tmp_path))
        wait_until(lambda: [len(w.steps) >= 5 for w in cut_off_job.workers(tmp_path)] == [True] * 2, "the first steps")
        alive = actors(head)
        assert {what.split()[0] for what in head.known_to_ray()} == {"actor", "placement"}, "the check is blind"
        assert {actor["class_name"] for actor in alive} == {"HoldfastAgent"}
        names = {actor["name"].rpartition(":")[0] for actor in alive}
        assert names == {f"holdfast:run:{worker.node}" for worker in cut_off_job.workers(tmp_path)}

        os.kill(driver_of(tmp_path), signal.SIGKILL)
        said, _ = first.communicate(timeout=300)
        assert first.returncode != 0, said
        wait_until(lambda: not list(our_processes()), "the end of all that the killed driver had")
        wait_until(lambda: not actors(head) and not head.known_to_ray(), "the end of all that Ray had for it")

        made = max(len(worker.steps) for worker in cut_off_job.workers(tmp_path))
        cut_off_job.say_enough(tmp_path, made + 20)
        head.run(*submission(tmp_path))
        found = json.loads((tmp_path / "found.json").read_text())
        assert found == {"history": list(range(1, made + 21)), "right": True}
        again = cut_off_job.workers(tmp_path)[2:]
        assert all(len(worker.steps) < made + 20 for worker in again), "it began anew"
        wait_until(lambda: not list(our_processes()), "the end of all processes of the run")
        wait_until(lambda: not head.known_to_ray(), "the end of all that Ray had for the run")
