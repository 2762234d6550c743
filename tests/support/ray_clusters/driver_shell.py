"""Drivers in processes of their own: the script of the fault tests, unchanged but for the engine's setting.

Ray prints what it has to say on their standard output too, at any time and in the middle of a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.faults import job
from support.ray_clusters.ray_machines import wait_until

STEPS = 400


def start(storage: Path, address: str, **config: Any) -> subprocess.Popen[str]:
    env = {**os.environ, "HOLDFAST_ENGINE": "ray", "RAY_ADDRESS": address, "PYTHONUNBUFFERED": "1"}
    command = [
        sys.executable,
        job.__file__,
        str(storage),
        "run",
        json.dumps({"steps": STEPS, **config}),
    ]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_checkpoints(driver: subprocess.Popen[str], storage: Path, count: int) -> None:
    manifests = storage / "run" / "checkpoints"

    def are_there() -> bool:
        assert driver.poll() is None, driver.communicate()
        return len(list(manifests.glob("*.json"))) >= count

    wait_until(are_there, f"{count} checkpoints")


def finish(driver: subprocess.Popen[str], within_s: float = 120.0) -> None:
    """It prints the digest of its last state, which is the right one."""
    out, err = driver.communicate(timeout=within_s)
    assert driver.returncode == 0, err
    assert str(job.expected(STEPS)) in out
