"""A report that returned on every rank is never repeated, where the run is on an object store too."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.faults.returned_runs import assert_nothing_was_done_twice, run
from support.object_stores.proxy import Fault, FaultProxy


@pytest.mark.parametrize("killed", [["driver"], ["agent", "driver", "workers"]])
def test_the_next_driver_takes_up_what_the_last_one_did_not_hear(
    killed: list[str], bucket: str, tmp_path: Path
) -> None:
    """Stopped before the report, the driver cannot have had it gathered."""
    config = {"stopped": ["agent", "driver"] if "agent" in killed else ["driver"], "killed": killed}
    assert run(bucket, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(bucket, tmp_path, **config))
    assert [*(tmp_path / "scratch").rglob("*")] == [tmp_path / "scratch" / f"holdfast-{os.geteuid()}"], "files are left"


@pytest.mark.parametrize("config", [{"all_save": False}, {"every": 2}, {"named": "best"}])
def test_ranks_without_files_reports_without_checkpoints_and_names(
    config: dict[str, object], bucket: str, tmp_path: Path
) -> None:
    config = {"stopped": ["driver"], "killed": ["driver"], **config}
    assert run(bucket, tmp_path, **config).returncode == -signal.SIGKILL
    assert_nothing_was_done_twice(tmp_path, run(bucket, tmp_path, **config))


def test_a_driver_that_lives_takes_up_what_a_killed_agent_did_not_pass_on(bucket: str, tmp_path: Path) -> None:
    assert_nothing_was_done_twice(tmp_path, run(bucket, tmp_path, stopped=["agent"], killed=["agent"]))


@pytest.mark.parametrize("killed_next", [["driver"], ["agent", "driver", "workers"]])
def test_what_an_earlier_attempt_left_to_upload_survives_the_driver(
    killed_next: list[str], proxy: FaultProxy, bucket: str, tmp_path: Path
) -> None:
    """The attempt that resumed from it had not reported anything yet."""
    proxy.arm("upload", Fault("503", seconds=3600))
    config = {"stopped": [], "killed": ["workers"], "killed_next": killed_next}
    assert run(bucket, tmp_path, **config).returncode == -signal.SIGKILL
    proxy.disarm()
    assert_nothing_was_done_twice(tmp_path, run(bucket, tmp_path, **config))


def test_both_what_an_earlier_attempt_left_and_what_the_last_one_reported_survive_the_driver(
    proxy: FaultProxy, bucket: str, tmp_path: Path
) -> None:
    """The numbers of their reports, counted by attempt, are the same."""
    proxy.arm("upload", Fault("503", seconds=3600))
    then = {"at": 5, "stopped": ["driver"], "killed": ["driver"]}
    config = {"at": 3, "stopped": [], "killed": ["workers"], "then": then}
    assert run(bucket, tmp_path, **config).returncode == -signal.SIGKILL
    proxy.disarm()
    assert_nothing_was_done_twice(tmp_path, run(bucket, tmp_path, **config))
