"""What ``answers_of_ray.json`` has is what Ray Data gives: the tests of ``holdfast.data`` compare with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from support.data.all_calls import ANSWERS, CASES
from support.repository import SUPPORT

RECORDED = json.loads(ANSWERS.read_text())


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(ray.__version__ != RECORDED["ray"], reason="the answers are those of another release of Ray")
def test_ray_data_gives_these_answers(tmp_path: Path) -> None:
    script = SUPPORT / "data" / "rays_answers.py"
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path / "answers.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "answers.json").read_text())["answers"]
    assert {name: found[name] for name in CASES} == RECORDED["answers"]
