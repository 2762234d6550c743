"""Text that is not valid Unicode, as names of files may be: what report() accepts can be looked at everywhere."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast import tune

ODD, SHOWN = "file-\udcff", r"file-\udcff"
METRICS: dict[str, Any] = {ODD: 1.0, "name": ODD, "nested": {"name": ODD}, "listed": [ODD], "loss": 0.5}


def report_odd(_config: dict[str, Any]) -> None:
    train.report(METRICS)
    train.report(METRICS)


def test_a_run_and_its_dataframe(tmp_path: Path) -> None:
    run_config = train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0)
    result = train.DataParallelTrainer(report_odd, train_loop_config={}, run_config=run_config).fit()
    for found in (result, train.Result.from_path(str(tmp_path / "run"))):
        assert found.metrics == METRICS
        frame = found.metrics_dataframe
        assert list(frame.columns) == [SHOWN, "name", "nested/name", "listed", "loss"]
        assert list(frame["name"]) == [SHOWN, SHOWN]
        assert list(frame["loss"]) == [0.5, 0.5]
        assert str(frame)
        frame.to_csv(tmp_path / "frame.csv")


def report_from_trial(_config: dict[str, Any]) -> None:
    tune.report(METRICS)
    tune.report(METRICS)


def test_an_experiment_its_loggers_and_dataframes(tmp_path: Path) -> None:
    run_config = tune.RunConfig(name="experiment", storage_path=str(tmp_path), verbose=0)
    space = {"path": tune.grid_search([ODD, "plain"]), ODD: 1}
    grid = tune.Tuner(report_from_trial, param_space=space, run_config=run_config).fit()
    assert grid.num_errors == 0
    frame = grid.get_dataframe()
    assert set(frame["config/path"]) == {SHOWN, "plain"}
    assert str(frame)
    for result in grid:
        home = Path(result.path)
        assert list(result.metrics_dataframe["name"]) == [SHOWN, SHOWN]
        rows = rows_of(home)
        assert [row["name"] for row in rows] == [SHOWN, SHOWN]
        assert [row[SHOWN] for row in rows] == ["1.0", "1.0"]
        lines = (home / "result.json").read_text().splitlines()
        assert [json.loads(line)["name"] for line in lines] == [ODD, ODD]
        assert json.loads((home / "params.json").read_text())[ODD] == 1
        assert list(home.glob("events.out.tfevents*"))

    again = tune.Tuner.restore(str(tmp_path / "experiment"), report_from_trial).fit()
    for result in again:
        assert len(rows_of(Path(result.path))) == 2


def rows_of(home: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((home / "progress.csv").read_text(encoding="utf-8").splitlines()))
