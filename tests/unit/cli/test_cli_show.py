"""``holdfast show``: a run's story, told from its files."""

from __future__ import annotations

import re
from pathlib import Path

from support.cli.cli_shell import finish_job, flip, holdfast, holdfast_json, snapshot, start_job, wait_for_checkpoint


def test_a_finished_run(finished: Path) -> None:
    before = snapshot(finished)
    shown = holdfast_json("show", finished)
    assert (shown["state"], shown["driver"], shown["reports"]) == ("finished", None, 5)
    assert shown["metrics"] == {"step": 5, "loss": 0.2}
    assert shown["configuration"]["scaling"]["num_workers"] == 2
    assert [event["kind"] for event in shown["timeline"]] == ["driver", "attempt", "failure", "attempt", "end"]
    assert [c["report"] for c in shown["checkpoints"]] == [2, 3, 4, 5]
    assert shown["damage"] == []
    (failure,) = shown["failures"]
    assert "rank 1 raised ValueError: planned failure at 2" in failure["text"]
    assert (failure["cause"], failure["action"]) == ("user error", "retry 1 of 1")
    assert snapshot(finished) == before


def test_the_text(finished: Path) -> None:
    text = holdfast("show", finished).stdout
    assert re.search(r"^state +finished$", text, re.MULTILINE)
    assert re.search(r"^trainer +DataParallelTrainer, num_workers=2$", text, re.MULTILINE)
    assert "attempt 1 with 2 workers from the beginning" in text
    assert "planned failure at 2 [user error]; retry 1 of 1" in text
    assert "attempt 2 with 2 workers from checkpoint_000002 (report 2)" in text
    assert "damage" not in text


def test_a_failed_run(storage: Path) -> None:
    shown = holdfast_json("show", storage / "failed")
    assert shown["state"] == "failed"
    assert "no retry" in shown["failures"][0]["action"]
    assert "planned failure at 2" in shown["timeline"][-1]["text"]


def test_a_stopped_run(storage: Path) -> None:
    assert [event["kind"] for event in holdfast_json("show", storage / "stopped")["timeline"]][-2:] == ["stop", "end"]


def test_a_driver_that_died_is_noticed_by_the_next(tmp_path: Path) -> None:
    process = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    process.kill()
    process.communicate(timeout=60)
    assert holdfast_json("show", tmp_path / "run")["state"] == "interrupted"
    (tmp_path / "go").touch()
    finish_job(start_job(tmp_path, wait_at=3))
    assert "driver 2 started (driver 1 was killed)" in holdfast("show", tmp_path / "run").stdout


def test_a_running_run_names_its_driver(tmp_path: Path) -> None:
    process = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    shown = holdfast_json("show", tmp_path / "run")
    assert (shown["state"], shown["driver"]["pid"], shown["damage"]) == ("running", process.pid, [])
    assert f"running: process {process.pid} on" in holdfast("show", tmp_path / "run").stdout
    (tmp_path / "go").touch()
    finish_job(process)


def test_damage_is_shown(finished: Path) -> None:
    flip(finished / "journal" / "000001.jsonl")
    flip(finished / "run.json")
    (finished / "checkpoints" / "checkpoint_000004.json").unlink()
    shown = holdfast_json("show", finished, code=1)
    assert [d["path"] for d in shown["damage"]] == [
        "run.json",
        "journal/000001.jsonl",
        "checkpoints/checkpoint_000004.json",
    ]
    assert shown["configuration"]["trainer"] == "DataParallelTrainer"
    assert "its checksum does not match" in holdfast("show", finished, code=1).stdout


def test_nothing_is_left_but_the_run_file(finished: Path) -> None:
    (finished / "journal" / "000001.jsonl").write_text("rubbish\n")
    flip(finished / "run.json")
    shown = holdfast_json("show", finished, code=1)
    assert (shown["state"], shown["configuration"], shown["timeline"]) == ("interrupted", {}, [])
    assert [c["report"] for c in shown["checkpoints"]] == [2, 3, 4, 5]
    assert "not known" in holdfast("show", finished, code=1).stdout


def test_the_run_of_0_1(golden: Path) -> None:
    shown = holdfast_json("show", golden)
    assert (shown["state"], shown["reports"]) == ("interrupted", 5)
    assert shown["metrics"] == {"step": 5, "nan": "nan", "n": {"1": "one"}}
    assert shown["configuration"]["train_loop_config"] == {"lr": 0.1}


def test_reports_that_a_new_attempt_took_back_do_not_count(golden: Path) -> None:
    """The second attempt began at report 3: without a report of its own, the third is the last."""
    (golden / "metrics" / "attempt-0002" / "rank-0.jsonl").unlink()
    first = golden / "metrics" / "attempt-0001" / "rank-0.jsonl"
    shown = holdfast_json("show", golden)
    assert (shown["reports"], shown["metrics"]["step"]) == (3, 3)
    first.unlink()
    shown = holdfast_json("show", golden)
    assert (shown["reports"], shown["metrics"]) == (3, None)
