"""The fixture ``holdfast_drill``, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import SUPPORT

JOB = SUPPORT / "drill" / "drill_job.py"
TESTS = f"""
def test_good(holdfast_drill):
    holdfast_drill({str(JOB)!r}, faults=["worker-kill@rank=0,step=4"]).check()

def test_flawed(holdfast_drill):
    holdfast_drill({str(JOB)!r}, "ignores", faults=["worker-kill@rank=0,step=4"]).check()
"""


@pytest.mark.timeout(300)
def test_a_drill_is_a_test(tmp_path: Path) -> None:
    # Imported, not registered: where the package's entry point has done that, twice would be an error.
    (tmp_path / "conftest.py").write_text("from holdfast.drill.pytest_plugin import holdfast_drill as holdfast_drill\n")
    (tmp_path / "test_script.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: the drill of" in done.stdout
    assert "PROBLEM: a checkpoint was never read" in done.stdout
