"""The guides of the frameworks run, each page as one script in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.docs import page_runner
from support.docs.page_blocks import name_of, needs_frameworks, pages

PATIENCE_S = 400.0


@pytest.mark.parametrize("page", [page for page in pages() if needs_frameworks(page)], ids=name_of)
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    home, temp = tmp_path / "page", tmp_path / "temp"
    home.mkdir()
    temp.mkdir()
    env = {**os.environ, "TMPDIR": str(temp), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, page_runner.__file__, str(page)]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
