"""``python ended_by_kubernetes.py DIRECTORY``: a run on one node, and the hook of examples/cluster/kuberay.yaml.

The hook is for all agents that it sees, so this is to be run in namespaces of its own. What was seen is in
``seen.json`` there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ray
import yaml

from support.repository import EXAMPLES

MANIFEST = EXAMPLES / "cluster" / "kuberay.yaml"


def hook() -> list[str]:
    (group,) = yaml.safe_load(MANIFEST.read_text())["spec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    command: list[str] = container["lifecycle"]["preStop"]["exec"]["command"]
    return command


def main() -> None:
    home = Path(sys.argv[1])
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    from support.ray_clusters.ray_machines import RayScene

    scene = RayScene(home, None)  # type: ignore[arg-type]
    seen: dict[str, object] = {}

    def end_pod() -> None:
        """The pod is not taken away here: another agent comes, and the run resumes from what was saved."""
        scene.await_steps(3)
        done = subprocess.run(hook(), timeout=120)
        seen.update(hook=done.returncode, notices=scene.notes("notice"), committed=len(scene.records("Committed")))
        scene.await_steps(3)

    with scene.meanwhile(end_pod):
        scene.check(scene.trainer(1, config={"every": 0}).fit())
    seen["lost"] = scene.lost_steps()
    (home / "seen.json").write_text(json.dumps(seen))
    ray.shutdown()


if __name__ == "__main__":
    main()
