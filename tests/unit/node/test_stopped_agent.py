"""An agent that is stopped (SIGSTOP) when its driver dies: nothing would wake it, so the kernel must."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.platform import process_control, processes
from support.repository import SUPPORT

OTHER_DRIVER = SUPPORT / "engine" / "other_driver.py"
PATIENCE_S = 120.0


def test_a_stopped_agent_does_not_outlive_its_driver(tmp_path: Path) -> None:
    told = json.dumps({"timeout_s": PATIENCE_S})
    driver = subprocess.Popen(
        [sys.executable, str(OTHER_DRIVER), str(tmp_path), told], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    with driver.stdout:
        agent, worker = (int(pid) for pid in driver.stdout.readline().split())
        os.kill(agent, signal.SIGSTOP)
        driver.kill()
        driver.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while any(processes.state(pid) not in ("", "Z", "X") for pid in (agent, worker)):
            assert time.monotonic() < deadline, f"agent {processes.state(agent)!r}, worker {processes.state(worker)!r}"
            time.sleep(0.01)
    finally:
        process_control.kill_group(agent)
        process_control.kill_group(worker)
