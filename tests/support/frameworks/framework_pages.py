"""The guide of a framework, as one script in an empty directory, and drills of its example."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.docs import page_runner
from support.repository import ROOT

PATIENCE_S = 800.0


def run_page(page: Path, home: Path) -> None:
    _run([sys.executable, page_runner.__file__, str(page)], home)


def drill(example: str, home: Path, *options: str) -> None:
    """Each fault is survived, and nothing differs from the undisturbed run."""
    command = str(Path(sys.executable).with_name("holdfast"))
    print(_run([command, "drill", *options, str(ROOT / "examples" / "frameworks" / example)], home))


def _run(command: list[str], home: Path) -> str:
    directory, temp = home / "page", home / "temp"
    directory.mkdir()
    temp.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for torchrun and holdfast
    env = {**os.environ, "PATH": path, "TMPDIR": str(temp), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
