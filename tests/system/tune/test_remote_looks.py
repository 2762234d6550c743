"""An experiment in an object store, as it is looked at afterwards."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.runs.stored_run import StoredRun
from holdfast.store.location import Location
from support.cli.cli_shell import holdfast, holdfast_json


def saves(config: dict[str, Any]) -> None:
    print("hello")
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "x").write_text(str(config["x"]))
        tune.report({"loss": config["x"]}, tune.Checkpoint.from_directory(directory))


def test_what_an_experiment_left_in_a_bucket(bucket: str) -> None:
    grid = tune.Tuner(
        saves,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(storage_path=bucket, name="far", verbose=0),
    ).fit()
    kinds = Counter(record.kind for record in StoredRun(Location.parse("far", f"{bucket}/far")).records())
    assert (kinds["Ended"], kinds["Over"]) == (2, 1)
    result = tune.Result.from_path(grid[0].path)
    assert (result.metrics["loss"], result.config, result.checkpoint) == (1, {"x": 1}, grid[0].checkpoint)
    told = holdfast_json("show", f"{bucket}/far")
    assert (told["state"], told["counts"]) == ("finished", {"TERMINATED": 2})
    assert holdfast("logs", f"{bucket}/far/{told['trials'][1]['name']}").stdout == "hello\n"
    assert "all 4 good" in holdfast("verify", f"{bucket}/far").stdout
    assert "has no trial 'nope'" in holdfast("show", f"{bucket}/far/nope", code=2).stderr
