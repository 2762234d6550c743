"""What takes long: clusters that are lost as a whole and built again, and one that Ray's autoscaler makes larger."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from support.ray_clusters import driver_shell, grown_by_autoscaler
from support.ray_clusters.ray_machines import Machines, our_processes, wait_until
from support.repository import SUPPORT

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--mount-proc", "--kill-child")
ALONE = "ip link set lo up && mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray && mount -t tmpfs none /dev/shm"


def in_namespaces(command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    shell = [*NAMESPACES, "sh", "-c", f"{ALONE} && {command}"]
    return subprocess.run(shell, env=env, capture_output=True, text=True, timeout=1100)


def test_a_new_cluster_goes_on_with_the_run_of_one_whose_head_was_killed(tmp_path: Path) -> None:
    first = Machines()
    try:
        first.top_up(2)
        driver = driver_shell.start(tmp_path, first.address)
        driver_shell.await_checkpoints(driver, tmp_path, 3)
        first.kill_head()
        driver.kill()  # it was on the head's machine
        driver.communicate()
        wait_until(lambda: not list(our_processes()), "the end of all that the killed driver had")
    finally:
        first.close()
    second = Machines()
    try:
        second.top_up(2)
        driver_shell.finish(driver_shell.start(tmp_path, second.address), 600.0)
    finally:
        second.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_rays_autoscaler_makes_a_run_larger_and_takes_the_nodes_back(tmp_path: Path) -> None:
    script = f"{sys.executable} {SUPPORT / 'ray_clusters/grown_by_autoscaler.py'} {tmp_path}"
    provider = Path(ray.__file__).parent / "autoscaler/_private/fake_multi_node"
    whole = tmp_path / "fake_multi_node"  # the wheel lacks its defaults
    shutil.copytree(provider, whole)
    (whole / "example.yaml").write_text(json.dumps(grown_by_autoscaler.CONFIG))
    done = in_namespaces(f"mount --bind {whole} {provider} && exec {script}")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert_checked(seen["checked"])
    assert seen["worlds"][0] == grown_by_autoscaler.FEWEST
    assert seen["worlds"][-1] == grown_by_autoscaler.MOST
    assert seen["worlds"] == sorted(seen["worlds"]), "it only grew"
    assert set(seen["lost"]) <= {0}, "to grow costs no step"
    assert seen["alive_in_the_end"] == 0, "what was asked for was withdrawn"


def assert_checked(checked: dict[str, Any]) -> None:
    """What ``holdfast cluster check`` said of the cluster when it had no node for workers yet."""
    most = grown_by_autoscaler.MOST
    code, said = checked["in the dark"]
    assert code == 0, said
    assert "space for 0 now" in said["verdict"]
    assert "--config" in said["verdict"]
    assert said["room"]["in_time"] is None
    code, said = checked["enough"]
    assert code == 0, said
    assert "it waits until the autoscaler has added nodes" in said["verdict"]
    assert said["room"] == {"free": 0, "now": 0, "in_time": most, "in_time_is_known": True}
    for who in ("too many", "on the launcher's head"):
        code, said = checked[who]
        assert code == 1, said
        assert f"space for {most} at most: raise the maximum of a node type" in said["verdict"]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_the_hook_of_the_kuberay_example_gives_a_run_notice(tmp_path: Path) -> None:
    """It is for all agents that it sees: here, those of a process namespace."""
    script = f"{sys.executable} {SUPPORT / 'ray_clusters/ended_by_kubernetes.py'} {tmp_path}"
    done = in_namespaces(f"exec {script}")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["hook"] == 0
    assert seen["notices"], "the script knows"
    assert seen["committed"] == 1, "and has saved, which it does for nothing else"
    assert seen["lost"] == [0]
