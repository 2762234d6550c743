"""Runs of ``returned_job.py`` until it ends, and what must hold of all of them together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.faults.returned_job import RANKS, STEPS

JOB = Path(__file__).with_name("returned_job.py")
PATIENCE_S = 120.0
AT = 4


def run(storage: Path | str, notes: Path, **config: Any) -> subprocess.CompletedProcess[str]:
    config = {"notes": str(notes), "at": AT, **config}
    command = [sys.executable, str(JOB), str(storage), "run", json.dumps(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def steps_done(notes: Path, rank: int) -> list[int]:
    return [int(line) for line in (notes / f"steps-{rank}").read_text().split()]


def assert_nothing_was_done_twice(notes: Path, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    for rank in range(RANKS):
        assert steps_done(notes, rank) == list(range(1, STEPS + 1))
    assert json.loads(done.stdout.splitlines()[-1]) == list(range(1, STEPS + 1))
