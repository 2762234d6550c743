"""``holdfast verify``: damage of any kind is found, a living run has none, and what it says would be resumed is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.store import journal
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from support.cli.cli_shell import finish_job, flip, holdfast, holdfast_json, snapshot, start_job, wait_for_checkpoint


def damaged(report: dict[str, list[dict[str, object]]]) -> list[object]:
    return [check["what"] for check in report["checks"] if check["damage"]]


def test_a_good_run(finished: Path) -> None:
    before = snapshot(finished)
    report = holdfast_json("verify", finished)
    assert report["good"]
    assert damaged(report) == []
    assert [check["what"] for check in report["checks"]][3:] == [
        "checkpoint_000002",
        "checkpoint_000003",
        "checkpoint_000004",
        "checkpoint_000005",
    ]
    assert report["resume"] == {"id": "checkpoint_000005", "report": 5}
    assert holdfast("verify", finished).stdout.splitlines()[-2:] == [
        "the run would resume from checkpoint_000005 (report 5)",
        "all 7 good",
    ]
    assert snapshot(finished) == before


def test_every_state_of_a_run_is_good(storage: Path) -> None:
    for name in ("failed", "stopped", "killed"):
        assert holdfast_json("verify", storage / name)["good"], name


def test_the_run_of_0_1(golden: Path) -> None:
    assert holdfast_json("verify", golden)["resume"]["id"] == "checkpoint_000005"


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "run.json": (lambda run: flip(run / "run.json"), "run.json"),
    "run.json is gone": (lambda run: (run / "run.json").unlink(), "run.json"),
    "journal": (lambda run: flip(run / "journal" / "000001.jsonl", 900), "journal"),
    "metrics": (lambda run: flip(run / "metrics" / "attempt-0001" / "rank-1.jsonl", 30), "metrics"),
    "manifest": (lambda run: flip(run / "checkpoints" / "checkpoint_000004.json"), "checkpoint_000004"),
    "no manifest": (lambda run: (run / "checkpoints" / "checkpoint_000004.json").unlink(), "checkpoint_000004"),
    "bit": (lambda run: flip(run / "checkpoints" / "checkpoint_000004" / "rank-1"), "checkpoint_000004"),
    "no file": (lambda run: (run / "checkpoints" / "checkpoint_000004" / "rank-1").unlink(), "checkpoint_000004"),
    "no files": (lambda run: shutil.rmtree(run / "checkpoints" / "checkpoint_000004"), "checkpoint_000004"),
    "extra file": (lambda run: (run / "checkpoints" / "checkpoint_000004" / "x").touch(), "checkpoint_000004"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_found_named_and_left_as_it_is(kind: str, finished: Path) -> None:
    damage, what = DAMAGES[kind]
    damage(finished)
    before = snapshot(finished)
    report = holdfast_json("verify", finished, code=1)
    assert not report["good"]
    assert damaged(report) == [what]
    assert report["resume"]["id"] == "checkpoint_000005"
    text = holdfast("verify", finished, code=1).stdout
    assert f"{what:<20} DAMAGED: " in text
    assert snapshot(finished) == before


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_is_said_to_be_resumed_is_what_a_driver_resumes(count: int, storage: Path, tmp_path: Path) -> None:
    """Of a killed run the newest checkpoints are damaged, each in another way."""
    run = tmp_path / "killed"
    shutil.copytree(storage / "killed", run)
    harm = [
        lambda path: flip(path / "step", 0),
        lambda path: path.with_name(f"{path.name}.json").unlink(),
        lambda path: flip(path.with_name(f"{path.name}.json")),
    ]
    for number, hurt in enumerate(harm[:count]):
        hurt(run / "checkpoints" / f"checkpoint_{3 - number:06d}")
    said = holdfast_json("verify", run, code=1)["resume"]
    finish_job(start_job(tmp_path, "killed"))
    started = [record.body for record in journal.read(RunLayout(run))[0] if record.kind == "GroupStarted"]
    assert started[-1]["resume"] == (said and said["id"])
    assert (started[-1]["resume"] is None) == (count == 3)


def test_a_commit_that_the_journal_missed_would_be_resumed(golden: Path) -> None:
    segment = golden / "journal" / "000001.jsonl"
    kept = [line for line in segment.read_text().splitlines(keepends=True) if "checkpoint_000005" not in line]
    segment.write_text("".join(kept))
    report = holdfast_json("verify", golden, code=1)
    assert damaged(report) == ["journal"]
    assert report["resume"]["id"] == "checkpoint_000005"


def test_quarantined_is_named_and_is_no_new_damage(golden: Path) -> None:
    (golden / "journal" / "000001.jsonl").unlink()
    CheckpointStore(RunLayout(golden)).quarantine("checkpoint_000005", "a bit was flipped")
    report = holdfast_json("verify", golden)
    assert report["quarantined"] == [{"id": "checkpoint_000005", "why": "a bit was flipped"}]
    assert report["resume"]["id"] == "checkpoint_000004"
    assert "quarantined  checkpoint_000005: a bit was flipped" in holdfast("verify", golden).stdout


def test_a_run_that_is_driven_has_no_damage(tmp_path: Path) -> None:
    """Its driver commits and deletes checkpoints all the time while it is verified, and is killed doing so.

    The job is paced: without a pause it stages faster than the driver commits, and there would be no end to that.
    """
    process = start_job(tmp_path, steps=100_000, keep=1, pause_s=0.02)
    wait_for_checkpoint(tmp_path, 3)
    for _ in range(8):
        assert process.poll() is None, process.communicate()
        report = holdfast_json("verify", tmp_path / "run")
        assert report["good"]
        assert report["resume"] is not None
    process.kill()
    process.communicate(timeout=60)
    assert holdfast_json("verify", tmp_path / "run")["good"]
