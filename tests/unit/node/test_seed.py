"""Where there is a seed, and what it is worth: to nodes that join late, and to a person at a prompt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.platform import process_control, processes
from support.repository import SUPPORT

pytest.importorskip("torch")
PATIENCE_S = 120.0
SLOW = """
import os, pathlib, time
home = pathlib.Path({home!r})
with open(home / "imported", "a") as file:
    file.write(f"{{os.getpid()}}\\n")
deadline = time.monotonic() + 60.0
while not (home / "go").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
"""


@pytest.mark.skipif(not process_control.LINUX, reason="a seed is forked on Linux alone")
@pytest.mark.timeout(300)
def test_a_copy_takes_over_when_it_is_warm_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(SLOW.format(home=str(tmp_path)))
    command = [sys.executable, str(SUPPORT / "node" / "warm_seed.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S * 4)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (copy,) = told["imported"]
    assert [parent for _, parent in told["zygotes"]] == [told["seed"], told["seed"], copy, copy]
    left = {told["seed"], copy, *(pid for pid, _ in told["zygotes"])}
    deadline = time.monotonic() + PATIENCE_S
    while any(processes.state(pid) not in ("", "Z", "X") for pid in left):
        assert time.monotonic() < deadline, "a process outlives its script"
        time.sleep(0.05)


@pytest.mark.skipif(not process_control.LINUX, reason="there are seeds on Linux alone")
@pytest.mark.timeout(300)
def test_a_prompt_with_threads_has_a_seed_that_imports_beside_it(tmp_path: Path) -> None:
    """As a notebook's kernel is. The seed is a process of its own, serves every fit(), and goes with the prompt."""
    typed = (SUPPORT / "node" / "typed_at_a_prompt.txt").read_text()
    command = [sys.executable, "-i", "-q"]
    prompt = subprocess.run(command, input=typed, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S * 4)
    told = json.loads(prompt.stdout.splitlines()[-1])
    assert told["comm"] == "hf-seed"
    assert told["forked from"] == [told["seed"]] * 2, "the parents of both runs' zygotes"
    assert told["had dynamo"] == [True, True]
    assert "the run was stopped. To resume, call fit() again" in prompt.stderr
    deadline = time.monotonic() + PATIENCE_S
    while processes.state(told["seed"]) not in ("", "Z", "X"):
        assert time.monotonic() < deadline, "the seed outlives its prompt"
        time.sleep(0.05)
