"""A checkpoint of a Transformers ``Trainer`` without the state of a shard: no row is trained on twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import support.frameworks

SCRIPT = Path(support.frameworks.__file__).with_name("transformers_skips.py")


def test_batches_that_were_trained_on_are_skipped_over_epochs(tmp_path: Path) -> None:
    """The checkpoint is of the first batch of the second epoch."""
    steps = printed(tmp_path, None)
    assert len(steps) == 6
    epochs = [sorted(row for step in epoch for row in step) for epoch in (steps[:3], steps[3:])]
    assert epochs == [list(range(12))] * 2
    shutil.rmtree(tmp_path / "checkpoint-6")
    assert printed(tmp_path, str(tmp_path / "checkpoint-4")) == steps[4:]
    shutil.rmtree(tmp_path / "checkpoint-6")
    assert printed(tmp_path, True, is_used=True) == steps[4:]


def printed(directory: Path, resume: Any, is_used: bool = False) -> list[list[int]]:
    command = [sys.executable, str(SCRIPT), str(directory), json.dumps(resume), json.dumps(is_used)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found
