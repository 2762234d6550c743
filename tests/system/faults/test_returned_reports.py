"""A report that returned on every rank is never repeated, whichever processes are killed in the next moment."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.faults.returned_runs import assert_nothing_was_done_twice, run


@pytest.mark.parametrize(
    "killed", [["driver"], ["agent", "driver"], ["driver", "workers"], ["agent", "driver", "workers"]]
)
def test_the_next_driver_takes_up_what_the_last_one_did_not_hear(killed: list[str], tmp_path: Path) -> None:
    """Stopped before the report, the driver cannot have committed it."""
    stopped = ["agent", "driver"] if "agent" in killed else ["driver"]
    config = {"stopped": stopped, "killed": killed}
    assert run(tmp_path, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, **config))


@pytest.mark.parametrize("config", [{"all_save": False}, {"every": 2}, {"named": "best"}])
def test_ranks_without_files_reports_without_checkpoints_and_names(config: dict[str, object], tmp_path: Path) -> None:
    config = {"stopped": ["driver"], "killed": ["driver"], **config}
    assert run(tmp_path, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, **config))


@pytest.mark.parametrize("killed", [["agent"], ["agent", "workers"], ["workers"]])
def test_a_driver_that_lives_takes_up_what_a_killed_agent_did_not_pass_on(killed: list[str], tmp_path: Path) -> None:
    stopped = ["agent"] if "agent" in killed else []
    assert_nothing_was_done_twice(tmp_path, run(tmp_path, tmp_path, stopped=stopped, killed=killed))
