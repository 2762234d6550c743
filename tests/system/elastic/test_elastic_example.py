from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.repository import EXAMPLES

EXAMPLE = EXAMPLES / "elastic_data.py"


@pytest.mark.timeout(400)
def test_the_example_sees_each_sample_once(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as temp:  # a short path: loader workers have sockets below it
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), "--storage-path", str(tmp_path / "runs"), "--epochs", "2"],
            env={**os.environ, "TMPDIR": temp, "HOLDFAST_DISPLAY": "plain"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=380,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two nodes are lost" in done.stdout
    assert "steps by 4, " in done.stdout
    for epoch in range(2):
        assert f"epoch {epoch}: 1500 of 1500 samples once, 0 more often" in done.stdout


@pytest.mark.timeout(300)
def test_the_script_that_measures_runs(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (EXAMPLE.parent.parent / "docs" / "elastic-data.md").read_text(), re.DOTALL
    )
    script = tmp_path / "measure.py"
    script.write_text(blocks[-1])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "prepared, SeededDataset: " in done.stdout
    assert len(done.stdout.splitlines()) == 8
