"""The guide of a framework, as one script in an empty directory, and drills of its example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.docs import page_runner
from support.repository import ROOT

PATIENCE_S = 800.0
ALL_FAULTS_S = 3000.0
TIMEOUT_S = 1300.0  # of a test: it runs a page, or four jobs
ALL_FAULTS_TIMEOUT_S = ALL_FAULTS_S + 600


def run_page(page: Path, home: Path) -> None:
    _run([sys.executable, page_runner.__file__, str(page)], home, PATIENCE_S)


def drill(example: str, home: Path) -> None:
    """Kills of a worker and of the driver are survived, and nothing differs from the undisturbed run."""
    _drill(["--only", "worker-kill,driver-kill"], example, home, PATIENCE_S)


def drill_all(example: str, home: Path) -> None:
    """So is each other fault."""
    _drill([], example, home, ALL_FAULTS_S)


def _drill(options: list[str], example: str, home: Path, patience_s: float) -> None:
    command = [str(Path(sys.executable).with_name("holdfast")), "drill", *options]
    print(_run([*command, str(ROOT / "examples" / "frameworks" / example)], home, patience_s))


def _run(command: list[str], home: Path, patience_s: float) -> str:
    directory, temp = home / "page", home / "temp"
    directory.mkdir()
    temp.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for torchrun and holdfast
    env = {**os.environ, "PATH": path, "TMPDIR": str(temp), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=patience_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
