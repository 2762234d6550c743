"""``holdfast ls``: what state each run is in, and that looking disturbs none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.cli.cli_shell import finish_job, flip, holdfast, holdfast_json, snapshot, start_job, wait_for_checkpoint


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def test_each_state_and_how_far_it_came(storage: Path) -> None:
    before = snapshot(storage)
    rows = by_name(holdfast_json("ls", storage))
    assert {name: row["state"] for name, row in rows.items()} == {
        "failed": "failed",
        "finished": "finished",
        "killed": "interrupted",
        "stopped": "stopped",
    }
    assert {name: row["reports"] for name, row in rows.items()} == {
        "failed": 2,
        "finished": 5,
        "killed": 3,
        "stopped": 3,
    }
    assert rows["finished"]["last_checkpoint"] == "checkpoint_000005"
    assert rows["finished"]["last_change"].endswith("Z")
    assert rows["finished"]["metrics"] == {"step": 5, "loss": 0.2}
    assert snapshot(storage) == before


def test_the_table_is_aligned(storage: Path) -> None:
    lines = holdfast("ls", storage).stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "REPORTS", "LAST", "CHECKPOINT", "LAST", "CHANGE", "METRICS"]
    assert len(lines) == 5
    assert [line[lines[0].index("STATE") :].split()[0] for line in lines[1:]] == [
        "failed",
        "finished",
        "interrupted",
        "stopped",
    ]


def test_a_run_that_is_driven_is_running_and_stays_so(tmp_path: Path) -> None:
    """From before the driver has its lease until it has finished: no look refuses or disturbs it."""
    process = start_job(tmp_path, wait_at=3)
    states = []
    while "running" not in states:
        assert process.poll() is None, process.communicate()
        states += [row["state"] for row in holdfast_json("ls", tmp_path)]
    assert set(states) <= {"running", "interrupted"}
    wait_for_checkpoint(tmp_path, 3)
    assert holdfast_json("ls", tmp_path)[0]["state"] == "running"
    assert holdfast_json("ls", tmp_path)[0]["reports"] == 3
    (tmp_path / "go").touch()
    finish_job(process)
    assert holdfast_json("ls", tmp_path)[0]["state"] == "finished"


def test_a_run_that_cannot_be_read_is_named_beside_the_others(finished: Path) -> None:
    broken = finished.parent / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{}")
    done = holdfast("ls", finished.parent, code=1)
    assert "finished" in done.stdout
    assert f"{broken}: what it is was lost" in done.stderr


def test_a_damaged_run_file_costs_nothing_where_the_journal_has_a_copy(finished: Path) -> None:
    flip(finished / "run.json")
    assert holdfast_json("ls", finished.parent)[0]["state"] == "finished"


def test_the_default_is_the_setting(storage: Path, tmp_path: Path) -> None:
    assert "finished" in holdfast("ls", HOLDFAST_STORAGE_PATH=str(storage)).stdout
    none = holdfast("ls", HOLDFAST_STORAGE_PATH=str(tmp_path / "none"))
    assert (none.stdout, none.stderr) == ("", f"no runs in {tmp_path / 'none'}\n")


def test_a_run_itself_is_listed(storage: Path) -> None:
    assert [row["name"] for row in holdfast_json("ls", storage / "failed")] == ["failed"]


def test_wrong_paths(tmp_path: Path) -> None:
    assert "does not exist. Pass the storage_path" in holdfast("ls", tmp_path / "none", code=2).stderr
    (tmp_path / "file").touch()
    assert "is not a directory" in holdfast("ls", tmp_path / "file", code=2).stderr
    assert holdfast_json("ls", tmp_path) == []
