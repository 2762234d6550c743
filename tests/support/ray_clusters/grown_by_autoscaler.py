"""``python grown_by_autoscaler.py DIRECTORY``: an elastic run on a cluster that Ray's own autoscaler makes larger.

The autoscaler starts raylets of this machine with its fake provider. Ending such a cluster ends every Ray that this
process can see, so it is to be run in namespaces of its own. At first the autoscaler may add one node only, and more
when the run trains there. What was seen is in ``seen.json`` there.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray

FEWEST, MOST = 1, 4
CONFIG: dict[str, Any] = {
    "cluster_name": "fake",
    "max_workers": 8,
    "idle_timeout_minutes": 0.05,
    "provider": {
        "type": "fake_multinode",
        "fake_multinode": True,
        "use_local_ips": True,
        "head_node_id": "fffffffffffffffffffffffffffffffffffffffffffffffffff00000",
        "launch_multiple": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": MOST},
    },
    "head_node_type": "ray.head.default",
    "upscaling_speed": 1.0,
    "auth": {},
    "docker": {},
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
}


def may_add(config: Path, most: int) -> None:
    """The autoscaler reads the file again and again."""
    written = copy.deepcopy(CONFIG)
    written["available_node_types"]["worker"]["max_workers"] = most
    whole = config.with_suffix(".new")
    whole.write_text(json.dumps(written))
    whole.rename(config)


def start(config: Path) -> None:
    head = CONFIG["provider"]["head_node_id"]
    env = {
        **os.environ,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": head,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": head,
    }
    command = ["ray", "start", "--head", "--num-cpus=0", f"--autoscaling-config={config}", "--include-dashboard=false"]
    subprocess.run([f"{Path(sys.executable).parent}/{command[0]}", *command[1:]], env=env, check=True, timeout=300)


def check(*options: str, home: Path | None = None) -> tuple[int, dict[str, Any]]:
    """What the command says; with a home where the launcher has put its file."""
    command = [sys.executable, "-m", "holdfast", "cluster", "check", "--json", *options]
    env = {**os.environ, **({} if home is None else {"HOME": str(home)})}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def checks(config: Path) -> dict[str, Any]:
    """Before a node is added."""
    from support.elastic.elastic_job import wait_until

    def told(*options: str) -> tuple[int, dict[str, Any]]:
        return check(*options, "--config", str(config))

    wait_until(lambda: not check("--workers", "4")[1]["room"]["in_time_is_known"], "a report of the autoscaler")
    as_if_launched = config.parent / "launched"
    as_if_launched.mkdir()
    (as_if_launched / "ray_bootstrap_config.yaml").write_text(config.read_text())
    return {
        "in the dark": check("--workers", f"{MOST}"),
        "enough": told("--workers", f"{FEWEST}:{MOST}"),
        "too many": told("--workers", f"{MOST + 1}"),
        "on the launcher's head": check("--workers", f"{MOST + 1}", home=as_if_launched),
    }


def workers_alive() -> int:
    return sum(1 for node in ray.nodes() if node["Alive"]) - 1


def main() -> None:
    home = Path(sys.argv[1])
    config = home / "autoscaling.json"
    may_add(config, MOST)
    start(config)
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        from support.ray_clusters.ray_machines import RayScene, left_over, wait_until

        checked = checks(config)
        may_add(config, FEWEST)
        scene = RayScene(home, None)  # type: ignore[arg-type]

        def grow() -> None:
            scene.await_steps(3, world=FEWEST)
            may_add(config, MOST)
            scene.await_steps(3, world=MOST)

        with scene.meanwhile(grow):
            result = scene.trainer((FEWEST, MOST), max_failures=0).fit()
        steps = scene.check(result)
        seen = {"steps": steps, "worlds": scene.worlds(), "lost": scene.lost_steps(), "checked": checked}
        wait_until(lambda: not left_over(), "the end of all that is ours")
        deadline = time.monotonic() + 120
        while workers_alive() and time.monotonic() < deadline:
            time.sleep(0.5)
        (home / "seen.json").write_text(json.dumps({**seen, "alive_in_the_end": workers_alive()}))
    finally:
        ray.shutdown()
        subprocess.run([f"{Path(sys.executable).parent}/ray", "stop", "--force"], check=False, timeout=120)


if __name__ == "__main__":
    main()
