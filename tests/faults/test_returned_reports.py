"""A report that returned on every rank is never done again, whichever processes are killed in the next moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from returned_job import RANKS, STEPS

JOB = Path(__file__).with_name("returned_job.py")
PATIENCE_S = 60.0
AT = 4


def run(storage: Path, notes: Path, **config: Any) -> subprocess.CompletedProcess[str]:
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


@pytest.mark.parametrize(
    "killed", [["driver"], ["agent", "driver"], ["driver", "workers"], ["agent", "driver", "workers"]]
)
def test_the_next_driver_takes_up_what_the_last_one_did_not_hear(killed: list[str], tmp_path: Path) -> None:
    """Stopped before the report, the driver cannot have committed it."""
    stopped = ["agent", "driver"] if "agent" in killed else ["driver"]
    config = {"stopped": stopped, "killed": killed}
    assert run(tmp_path, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, **config))


def test_a_rank_that_brings_no_files_counts_too(tmp_path: Path) -> None:
    config = {"stopped": ["driver"], "killed": ["driver"], "all_save": False}
    assert run(tmp_path, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, **config))


def test_metrics_of_reports_without_a_checkpoint_are_taken_up_with_the_next_one(tmp_path: Path) -> None:
    config = {"stopped": ["driver"], "killed": ["driver"], "every": 2}
    assert run(tmp_path, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, **config))


@pytest.mark.parametrize("killed", [["agent"], ["agent", "workers"], ["workers"]])
def test_a_driver_that_lives_takes_up_what_a_killed_agent_did_not_pass_on(killed: list[str], tmp_path: Path) -> None:
    stopped = ["agent"] if "agent" in killed else []
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, stopped=stopped, killed=killed))
