"""What takes long: clusters that are lost as a whole and built again, and one that Ray's autoscaler makes larger."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import driver_shell
import grown_by_autoscaler
import pytest
import ray
from ray_machines import Machines, our_processes, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
HERE = Path(__file__).parent
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--mount-proc", "--kill-child")
ALONE = "ip link set lo up && mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray && mount -t tmpfs none /dev/shm"


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
    script = f"{sys.executable} {HERE / 'grown_by_autoscaler.py'} {tmp_path}"
    provider = Path(ray.__file__).parent / "autoscaler/_private/fake_multi_node"
    whole = tmp_path / "fake_multi_node"  # the wheel lacks its defaults
    shutil.copytree(provider, whole)
    (whole / "example.yaml").write_text(json.dumps(grown_by_autoscaler.CONFIG))
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(HERE)}
    done = subprocess.run(
        [*NAMESPACES, "sh", "-c", f"{ALONE} && mount --bind {whole} {provider} && exec {script}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["worlds"][-1] == grown_by_autoscaler.MOST
    assert set(seen["lost"]) <= {0}, "to grow costs no step"
    assert seen["alive_in_the_end"] == 0, "what was asked for was withdrawn"
