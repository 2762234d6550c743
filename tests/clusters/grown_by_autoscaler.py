"""``python grown_by_autoscaler.py DIRECTORY``: an elastic run on a cluster that Ray's own autoscaler makes larger.

The autoscaler starts raylets of this machine with its fake provider. Ending such a cluster ends every Ray that this
process can see, so it is to be run in namespaces of its own. What was seen is in ``seen.json`` there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import ray

MOST = 4
CONFIG = {
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


def start(home: Path) -> None:
    config = home / "autoscaling.json"
    config.write_text(json.dumps(CONFIG))
    head = str(CONFIG["provider"]["head_node_id"])  # type: ignore[index]
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


def workers_alive() -> int:
    return sum(1 for node in ray.nodes() if node["Alive"]) - 1


def main() -> None:
    home = Path(sys.argv[1])
    start(home)
    try:
        ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
        from ray_machines import RayScene, left_over, wait_until

        scene = RayScene(home, None)  # type: ignore[arg-type]
        with scene.meanwhile(lambda: scene.await_steps(3, world=MOST)):
            result = scene.trainer((1, MOST), max_failures=0).fit()
        steps = scene.check(result)
        seen = {"steps": steps, "worlds": scene.worlds(), "lost": scene.lost_steps(), "alive": workers_alive()}
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
