"""Nodes that join late get their workers from a seed that has imported what takes long, once it has."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.node import posix

pytest.importorskip("torch")
PATIENCE_S = 60.0
SLOW = """
import os, pathlib, time
home = pathlib.Path({home!r})
with open(home / "imported", "a") as file:
    file.write(f"{{os.getpid()}}\\n")
deadline = time.monotonic() + 60.0
while not (home / "go").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
"""


@pytest.mark.skipif(not posix.LINUX, reason="a seed is forked on Linux alone")
@pytest.mark.timeout(300)
def test_a_copy_takes_over_when_it_is_warm_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(SLOW.format(home=str(tmp_path)))
    command = [sys.executable, str(Path(__file__).with_name("warm_seed.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 4)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (copy,) = told["imported"]
    assert [parent for _, parent in told["zygotes"]] == [told["seed"], told["seed"], copy, copy]
    left = {told["seed"], copy, *(pid for pid, _ in told["zygotes"])}
    deadline = time.monotonic() + PATIENCE_S
    while any(posix.state(pid) not in ("", "Z", "X") for pid in left):
        assert time.monotonic() < deadline, "a process outlives its script"
        time.sleep(0.05)
