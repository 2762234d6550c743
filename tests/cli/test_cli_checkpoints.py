"""``holdfast checkpoints``: what was kept, and what is wrong with the rest."""

from __future__ import annotations

from pathlib import Path

from cli_shell import flip, holdfast, holdfast_json

from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout


def test_report_size_metrics_and_validation(finished: Path) -> None:
    listed = holdfast_json("checkpoints", finished)["checkpoints"]
    assert [c["id"] for c in listed] == [f"checkpoint_{n:06d}" for n in (2, 3, 4, 5)]
    last = listed[-1]
    assert (last["report"], last["size"], last["files"], last["attempt"]) == (5, 4001, 3, 2)
    assert (last["metrics"], last["validation"]) == ({"step": 5, "loss": 0.2}, "COMMITTED")
    row = holdfast("checkpoints", finished).stdout.splitlines()[-1]
    assert row.startswith("5       checkpoint_000005  ")
    assert "4 kB" in row
    assert row.endswith("step 5, loss 0.2")


def test_validations_of_0_1(golden: Path) -> None:
    listed = holdfast_json("checkpoints", golden)["checkpoints"]
    assert {c["validation"] for c in listed} == {"VALIDATED"}
    assert [c["metrics"]["good"] for c in listed] == [3, 4, 5]
    assert "VALIDATED" in holdfast("checkpoints", golden).stdout


def test_damaged_and_quarantined_ones_are_named(finished: Path) -> None:
    CheckpointStore(RunLayout(finished)).quarantine("checkpoint_000003", "a bit was flipped")
    flip(finished / "checkpoints" / "checkpoint_000004.json")
    text = holdfast("checkpoints", finished, code=1).stdout
    assert "quarantined: checkpoint_000003: a bit was flipped" in text
    assert "damaged: checkpoints/checkpoint_000004.json" in text
    assert "checkpoint_000005" in text


def test_a_run_without_checkpoints(golden: Path) -> None:
    (golden / "journal" / "000001.jsonl").unlink()
    for path in (golden / "checkpoints").glob("*.json"):
        path.unlink()
    done = holdfast("checkpoints", golden)
    assert (done.stdout, done.stderr) == ("", f"{golden} has no checkpoint\n")
