"""What ``HorovodTrainer`` sets up, with a stand-in for Horovod; ``make horovod`` runs the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.frameworks.framework_contract import HERE, PATIENCE_S


def test_workers_on_two_nodes_meet_and_meet_again_after_a_kill(tmp_path: Path) -> None:
    paths = [str(HERE / "stand_in"), str(HERE.parents[1])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(HERE / "horovod_meeting.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found, steps, *config = json.loads(done.stdout.splitlines()[-1])
    assert found == [
        ["0", "3", "0", "2", "0", "2", "node-0", "gloo"],
        ["1", "3", "1", "2", "0", "1", "node-0", "gloo"],
        ["2", "3", "0", "1", "1", "2", "node-1", "gloo"],
    ]
    assert steps == [1, 2]
    assert config == [["lo"], 60], "as restore finds it in the run's record"
