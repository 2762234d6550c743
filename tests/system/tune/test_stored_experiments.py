"""What is left of an experiment, read by ``Result.from_path`` and by the commands, without any of its code."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import NotARunError
from holdfast.runs import experiments
from holdfast.runs.experiments import account, own_records
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.tune.experiment import definition
from holdfast.tune.result_grid import ResultGrid
from support.cli.cli_shell import holdfast, holdfast_json


def saves(config: dict[str, Any]) -> None:
    for epoch in range(2):
        if config["x"] == 3 and epoch == 1:
            raise ValueError("three is too many")
        print("epoch", epoch)
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "epoch").write_text(str(epoch))
            tune.report({"nested": {"loss": config["x"] + epoch}}, tune.Checkpoint.from_directory(directory))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> ResultGrid:
    return tune.Tuner(
        saves,
        param_space={"x": tune.grid_search([1, 3])},
        tune_config=tune.TuneConfig(metric="nested/loss", mode="max"),
        run_config=tune.RunConfig(storage_path=str(tmp_path_factory.mktemp("storage")), name="stored", verbose=0),
    ).fit()


def test_a_trial_s_result_is_read_from_its_directory(grid: ResultGrid) -> None:
    for result in grid:
        read = tune.Result.from_path(result.path)
        assert read.config == result.config
        assert read.checkpoint == result.checkpoint
        assert read.metrics == result.metrics
        assert read.metrics["nested"] == result.metrics["nested"]
        assert read.metrics_dataframe.equals(result.metrics_dataframe)
        assert {"hostname", "date", "time_since_restore"} <= set(read.metrics_dataframe)
        assert str(read.error) == str(result.error)
        assert len(read.best_checkpoints) == len(result.best_checkpoints) > 0
    assert tune.Result.from_path(grid[0].path).get_best_checkpoint("nested/loss", "max") == grid[0].checkpoint


def test_an_experiment_is_no_run_and_no_trial(grid: ResultGrid) -> None:
    with pytest.raises(NotARunError, match="is an experiment, with a result for each trial"):
        tune.Result.from_path(grid.experiment_path)
    with pytest.raises(NotARunError, match="has no trial 'nope'"):
        tune.Result.from_path(f"{grid.experiment_path}/nope")


def test_experiments_are_listed_beside_runs(grid: ResultGrid) -> None:
    storage = Path(grid.experiment_path).parent
    text = holdfast("ls", storage).stdout
    header, line = text.splitlines()
    assert header.split()[:3] == ["EXPERIMENT", "STATE", "TRIALS"]
    assert line.startswith("stored      finished  2: 1 failed, 1 done  3 ")
    assert f"nested/loss=3 by {grid[1].path.rpartition('/')[2].partition('_1_x')[0]}: x 3" in line
    (row,) = holdfast_json("ls", storage)
    assert (row["kind"], row["state"], row["trials"]) == ("experiment", "finished", {"TERMINATED": 1, "ERROR": 1})
    assert row["best"]["value"] == 3


def test_show_has_the_trials_of_an_experiment(grid: ResultGrid) -> None:
    text = holdfast("show", grid.experiment_path).stdout
    assert "state       finished" in text
    assert "trainable   saves, to maximize nested/loss" in text
    assert "three is too many" in text
    told = holdfast_json("show", grid.experiment_path)
    assert [trial["status"] for trial in told["trials"]] == ["TERMINATED", "ERROR"]
    assert [trial["config"] for trial in told["trials"]] == [{"x": 1}, {"x": 3}]
    assert told["best"] == told["trials"][1]["id"]


def test_a_trial_is_shown_as_a_run_is(grid: ResultGrid) -> None:
    """By its directory, its name and its id."""
    directory = Path(grid[0].path)
    told = holdfast_json("show", directory)
    trial = told["configuration"]["trial"]
    assert (told["state"], told["reports"], trial["status"]) == ("finished", 2, "TERMINATED")
    assert told["configuration"]["train_loop_config"] == {"x": 1}
    assert len(told["checkpoints"]) == 2
    by_name = holdfast("show", directory.parent / trial["name"]).stdout
    assert str(directory) in by_name
    assert str(directory) in holdfast("show", directory.parent / trial["id"]).stdout
    assert "config      x 1" in by_name
    assert holdfast("logs", directory).stdout == "epoch 0\nepoch 1\n"
    assert "all 5 good" in holdfast("verify", directory).stdout
    assert len(holdfast("checkpoints", directory).stdout.splitlines()) == 3
    assert "raised ValueError: three is too many" in holdfast("show", grid[1].path).stdout


@pytest.mark.parametrize("command", ["logs", "checkpoints", "watch"])
def test_commands_for_one_run_ask_for_a_trial(grid: ResultGrid, command: str) -> None:
    told = holdfast(command, grid.experiment_path, code=2).stderr
    assert "is an experiment. Pass one of its trials" in told
    assert "has no trial 'nope'" in holdfast(command, f"{grid.experiment_path}/nope", code=2).stderr


def test_verify_looks_into_every_trial(grid: ResultGrid, tmp_path: Path) -> None:
    shutil.copytree(grid.experiment_path, tmp_path / "copied")
    assert "all 4 good" in holdfast("verify", tmp_path / "copied").stdout
    (file,) = (tmp_path / "copied" / Path(grid[1].path).name).glob("checkpoints/*/epoch")
    file.write_text("7")
    told = holdfast("verify", tmp_path / "copied", code=1).stdout
    assert "1 of 4 damaged" in told
    assert f"DAMAGED: {Path(grid[1].path).name}/checkpoints/" in told


SLOW = """
import sys, time
from holdfast import tune

def slow(config):
    for epoch in range(10_000):
        tune.report({"epoch": epoch})
        time.sleep(0.05)

if __name__ == "__main__":
    tune.Tuner(slow, run_config=tune.RunConfig(storage_path=sys.argv[1], name="slow", verbose=0)).fit()
"""


def test_an_experiment_at_work_is_seen_and_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    process = subprocess.Popen([sys.executable, str(tmp_path / "slow.py"), str(tmp_path)])
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("slow/*/metrics/*/*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        told = holdfast_json("show", tmp_path / "slow")
        assert (told["state"], [trial["status"] for trial in told["trials"]]) == ("running", ["RUNNING"])
        assert holdfast_json("show", tmp_path / "slow" / told["trials"][0]["id"])["state"] == "running"
        holdfast("stop", tmp_path / "slow", "--timeout", "60")
        assert process.wait(60) == 128 + signal.SIGTERM
        told = holdfast_json("show", tmp_path / "slow")
        assert (told["state"], told["unfinished"]) == ("interrupted", 1)
    finally:
        process.kill()
        process.wait()


def entry(kind: str, /, **body: Any) -> Record:
    return Record(0, 1.0, kind, body)


def added(id: str) -> Record:
    return entry("Added", trial=id, name=id, directory=id, config={}, params={})


def test_a_trial_that_began_anew_is_read_from_its_new_beginning() -> None:
    records = [
        added("a"),
        entry("Started", trial="a", time=1.0),
        entry("OfTrial", trial="a", kind="GroupStarted", body={"generation": 1}),
        entry("Reported", trial="a", iteration=3, metrics={"loss": 1}, time=2.0),
        entry("Ended", trial="a", error="it broke"),
        entry("Later", what="a record of a version to come"),
        entry("Resumed", trial="a", anew=True),
        entry("OfTrial", trial="a", kind="GroupStarted", body={"generation": 2}),
    ]
    (trial,) = account(Location("", "/e"), {}, records).trials.values()
    assert (trial.status, trial.metrics, trial.error, trial.directory) == ("PENDING", {}, "", "a.restart-1")
    assert [record.body["generation"] for record in own_records(records)["a"]] == [2]


def test_what_ran_when_a_driver_died_waits() -> None:
    records = [added("a"), entry("Started", trial="a", time=1.0), entry("Began", epoch=2)]
    assert account(Location("", "/e"), {}, records).counts == {"PENDING": 1}


def test_the_kind_is_the_one_that_experiments_write() -> None:
    assert experiments.KIND == definition.KIND
