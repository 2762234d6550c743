"""``holdfast checkpoints``: what was kept, and what is wrong with the rest."""

from __future__ import annotations

from pathlib import Path

from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from support.cli.cli_shell import finish_job, flip, holdfast, holdfast_json, start_job, wait_for_checkpoint


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


def test_verify_names_the_one_that_is_damaged(finished: Path) -> None:
    flip(finished / "checkpoints" / "checkpoint_000004" / "step", at=0)
    lines = holdfast("checkpoints", "verify", finished, code=1).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["checkpoint_000002", "good"],
        ["checkpoint_000003", "good"],
        ["checkpoint_000004", "DAMAGED:"],
        ["checkpoint_000005", "good"],
    ]
    assert holdfast_json("checkpoints", "verify", finished, "checkpoint_000005") == {
        "path": str(finished),
        "good": True,
        "checkpoints": [{"id": "checkpoint_000005", "good": True, "problem": None}],
    }


def test_export_copies_what_was_saved(finished: Path, tmp_path: Path) -> None:
    told = holdfast_json("checkpoints", "export", finished, "--to", tmp_path / "newest")
    assert told == {"id": "checkpoint_000005", "path": str(tmp_path / "newest"), "files": 3, "size": 4001}
    (tmp_path / "empty").mkdir()
    text = holdfast("checkpoints", "export", finished, "checkpoint_000003", "--to", tmp_path / "empty").stdout
    assert text == f"checkpoint_000003 (report 3) is in {tmp_path / 'empty'}\n"
    for target, id in (("newest", "checkpoint_000005"), ("empty", "checkpoint_000003")):
        names = sorted(path.name for path in (tmp_path / target).iterdir())
        assert names == ["rank-0", "rank-1", "step"]
        source = finished / "checkpoints" / id
        assert all((tmp_path / target / name).read_bytes() == (source / name).read_bytes() for name in names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "newest", "run"]


def test_the_best_checkpoint_is_exported(finished: Path, tmp_path: Path) -> None:
    def best(name: str, *options: str) -> str:
        told = holdfast_json("checkpoints", "export", finished, "--best", *options, "--to", tmp_path / name)
        return str(told["id"])

    assert best("largest", "--metric", "loss") == "checkpoint_000002"
    assert best("smallest", "--metric", "loss", "--mode", "min") == "checkpoint_000005"
    for options, remedy in (
        (["--best"], "Use --best --metric NAME"),
        (["--best", "--metric", "los"], "has a number for 'los'. Their metrics: loss, step."),
        (["--best", "checkpoint_000003"], "name a checkpoint or use --best, not both"),
        (["--metric", "loss"], "--metric works only with --best: use --best --metric NAME"),
    ):
        command = ("checkpoints", "export", finished, *options, "--to", tmp_path / "no")
        assert remedy in holdfast(*command, code=2).stderr


def test_what_cannot_be_exported(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, remedy in (
        (["--to", tmp_path / "full"], "already exists. Choose an empty directory."),
        (["--to", tmp_path / "no" / "parent"], "does not exist. Create it first."),
        (["--to", tmp_path / "new", "checkpoint_000002", "checkpoint_000003"], "name only one checkpoint"),
        (["--to", tmp_path / "new", "none"], "has no checkpoint 'none'. It has: checkpoint_000002, "),
        (["--to", "/proc/new"], "/proc cannot be written"),
        ([], "the following arguments are required: --to"),
    ):
        assert remedy in holdfast("checkpoints", "export", finished, *arguments, code=2).stderr
    flip(finished / "checkpoints" / "checkpoint_000005" / "step", at=0)
    done = holdfast("checkpoints", "export", finished, "--to", tmp_path / "new", code=1)
    assert "is damaged, and was not exported: step has other content" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "run"]


def test_delete_spares_what_the_run_would_go_on_from(finished: Path) -> None:
    refused = holdfast("checkpoints", "delete", finished, "checkpoint_000005", "--yes", code=2).stderr
    assert "the run would resume from checkpoint_000005, so it is kept" in refused
    flip(finished / "checkpoints" / "checkpoint_000005" / "step", at=0)
    for id in ("checkpoint_000005", "checkpoint_000004"):
        assert f"resume from {id}" in holdfast("checkpoints", "delete", finished, id, "--yes", code=2).stderr
    told = holdfast_json("checkpoints", "delete", finished, "checkpoint_000003", "checkpoint_000002", "--yes")
    assert (told["deleted"], told["size"]) == (["checkpoint_000002", "checkpoint_000003"], 8002)
    assert not (finished / "checkpoints" / "checkpoint_000003").exists()
    holdfast("checkpoints", "delete", finished, "checkpoint_000005", "--yes", "--force")
    assert [c["id"] for c in holdfast_json("checkpoints", finished)["checkpoints"]] == ["checkpoint_000004"]


def test_a_run_with_deleted_checkpoints_is_not_damaged_and_goes_on(tmp_path: Path) -> None:
    finish_job(start_job(tmp_path, keep=5))
    assert holdfast("checkpoints", "delete", tmp_path / "run", "--keep", 2, "--yes").stdout.splitlines() == [
        f"deleted checkpoint_{n:06d}" for n in (1, 2, 3)
    ]
    checked = holdfast_json("verify", tmp_path / "run")
    assert (checked["good"], checked["resume"]["id"]) == (True, "checkpoint_000005")
    assert all("deleted by hand" in one["why"] for one in checked["quarantined"])
    assert "nothing to delete" in holdfast("checkpoints", "delete", tmp_path / "run", "--keep", 2).stderr
    finish_job(start_job(tmp_path, steps=6, keep=5))
    shown = holdfast_json("show", tmp_path / "run")
    assert (shown["metrics"]["step"], shown["damage"]) == (6, [])
    assert "deleted by hand" in holdfast("verify", tmp_path / "run").stdout  # that its manifest is missing says less


def test_delete_asks_and_needs_an_answer(finished: Path) -> None:
    done = holdfast("checkpoints", "delete", finished, "checkpoint_000002", code=2)
    assert "checkpoint_000002 (1 checkpoint, 4 kB)" in done.stderr
    assert "cannot ask for confirmation without a terminal. Use --yes to delete without asking" in done.stderr
    for arguments, remedy in (
        ([], "name the checkpoints to delete"),
        (["checkpoint_000002", "--keep", "1"], "name the checkpoints to delete"),
        (["--keep", "0"], "must be at least 1"),
        (["none"], "has no checkpoint 'none'"),
    ):
        assert remedy in holdfast("checkpoints", "delete", finished, "--yes", *arguments, code=2).stderr
    assert len(holdfast_json("checkpoints", finished)["checkpoints"]) == 4


def test_a_driven_run_keeps_its_checkpoints(tmp_path: Path) -> None:
    job = start_job(tmp_path, wait_at=3)
    wait_for_checkpoint(tmp_path, 3)
    done = holdfast("checkpoints", "delete", tmp_path / "run", "checkpoint_000001", "--yes", code=1)
    assert f"is being driven by process {job.pid}" in done.stderr
    (tmp_path / "go").touch()
    finish_job(job)
    assert holdfast_json("verify", tmp_path / "run")["good"]
