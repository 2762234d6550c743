"""Experiments with real trials: what a script gets, what schedulers make of it, and what failures leave."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import TrainingFailedError
from support.tune.counting import EPOCHS, SCHEDULERS, count, tuner


def doubled(config: dict[str, Any]) -> dict[str, Any]:
    tune.report({"value": config["x"]})
    return {"value": 2 * config["x"]}


def test_a_grid_with_samples_gives_all_results(tmp_path: Path) -> None:
    grid = tune.Tuner(
        doubled,
        param_space={"x": tune.grid_search([1, 2, 3]), "y": tune.uniform(0, 1), "constant": "c"},
        tune_config=tune.TuneConfig(metric="value", mode="max", num_samples=2),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="grid", verbose=0),
    ).fit()
    assert sorted(result.metrics["value"] for result in grid) == [2, 2, 4, 4, 6, 6]
    assert grid.num_errors == 0
    assert grid.num_terminated == 6
    best = grid.get_best_result()
    assert best.config["x"] == 3
    assert best.config["constant"] == "c"
    assert best.metrics["training_iteration"] == 2
    assert list(best.metrics_dataframe["value"]) == [3, 6]
    directory = Path(best.path)
    assert json.loads((directory / "params.json").read_text())["x"] == 3
    assert len((directory / "result.json").read_text().splitlines()) == 2
    assert len(grid.get_dataframe()) == 6


def test_a_stop_criterion_ends_each_trial_at_just_that_result(tmp_path: Path) -> None:
    experiment = tuner(str(tmp_path))
    experiment._definition.run_config.stop = {"training_iteration": 3}
    grid = experiment.fit()
    assert [result.metrics["training_iteration"] for result in grid] == [3] * 4
    lines = (tmp_path / "epochs.log").read_text().splitlines()
    assert len(lines) == 12, "a trial went on behind the result that stopped it"


def test_asha_stops_the_worse_half(tmp_path: Path) -> None:
    steps = tune.grid_search([9, 1, 8, 2, 7, 3])  # the last ones are surely worse than half of those before
    grid = tuner(str(tmp_path), SCHEDULERS["asha"](), samples=1, step=steps).fit()
    iterations = [result.metrics["training_iteration"] for result in grid]
    assert max(iterations) == EPOCHS
    assert min(iterations) < EPOCHS
    assert all(result.error is None for result in grid)


def test_population_based_training_copies_weights_and_changes_steps(tmp_path: Path) -> None:
    steps = tune.grid_search([9, 1, 8, 7])  # one is surely the worst, whenever they are compared
    grid = tuner(str(tmp_path), SCHEDULERS["pbt"](), samples=1, step=steps).fit()
    assert max(result.metrics["epoch"] for result in grid) == EPOCHS
    records = (tmp_path / "counted" / "journal" / "000001.jsonl").read_text()
    assert '"kind":"Exploited"' in records
    assert '"kind":"Adopted"' in records


def fails_at(config: dict[str, Any]) -> None:
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        start = int(Path(checkpoint.path, "epoch").read_text())
    for epoch in range(start, 4):
        if epoch == 2 and config["fails"]:
            marker = Path(config["marker"])
            if config["fails"] == "always" or not marker.exists():
                marker.touch()
                raise ValueError("that did not go well")
        directory = Path(tune.get_context().get_trial_dir(), f"save-{os.getpid()}")
        directory.mkdir(exist_ok=True)
        (directory / "epoch").write_text(str(epoch + 1))
        tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(str(directory)))


def failing(tmp_path: Path, fails: list[Any], **failure: Any) -> tune.Tuner:
    return tune.Tuner(
        fails_at,
        param_space={"fails": tune.grid_search(fails), "marker": str(tmp_path / "failed")},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path), name="failing", verbose=0, failure_config=tune.FailureConfig(**failure)
        ),
    )


def test_a_trial_that_fails_is_retried_from_its_checkpoint_and_others_are_not_touched(tmp_path: Path) -> None:
    grid = failing(tmp_path, ["once", ""], max_failures=1).fit()
    assert grid.num_errors == 0
    assert [list(result.metrics_dataframe["epoch"]) for result in grid] == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_a_trial_that_fails_for_good_has_its_error_in_its_result(tmp_path: Path) -> None:
    grid = failing(tmp_path, ["always", ""]).fit()
    assert grid.num_errors == 1
    assert grid.num_terminated == 1
    assert "that did not go well" in str(grid.errors[0])
    assert grid[0].metrics["epoch"] == 1
    assert grid[0].checkpoint is not None


def test_a_trial_that_cannot_have_its_directory_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # which would fail first

    class Obstruction(tune.Callback):
        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            if trial.config["x"] == 2:
                (tmp_path / "obstructed" / "x-2").write_text("in the way")

    grid = tune.Tuner(
        doubled,
        param_space={"x": tune.grid_search([1, 2, 3, 4])},
        tune_config=tune.TuneConfig(trial_dirname_creator=lambda trial: f"x-{trial.config['x']}"),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="obstructed", verbose=0, callbacks=[Obstruction()]),
    ).fit()
    assert [result.error is None for result in grid] == [True, False, True, True]
    assert "x-2 cannot be written" in str(grid[1].error)


def test_fail_fast_ends_the_experiment_and_it_can_be_restored(tmp_path: Path) -> None:
    grid = failing(tmp_path, ["always", ""], fail_fast=True).fit()
    assert grid.num_errors == 1
    assert grid.num_terminated == 0
    restored = tune.Tuner.restore(str(tmp_path / "failing"), fails_at)
    again = restored.fit()
    assert again.num_errors == 1
    assert again.num_terminated == 1


def test_fail_fast_may_raise(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailedError, match="that did not go well"):
        failing(tmp_path, ["always", ""], fail_fast="raise").fit()


def test_errored_trials_can_be_resumed_or_restarted(tmp_path: Path) -> None:
    assert failing(tmp_path, ["once"]).fit().num_errors == 1
    path = str(tmp_path / "failing")
    assert tune.Tuner.restore(path, fails_at).fit().num_errors == 1, "nobody asked for it"
    resumed = tune.Tuner.restore(path, fails_at, resume_errored=True).fit()
    assert resumed.num_errors == 0
    assert list(resumed[0].metrics_dataframe["epoch"]) == [0, 1, 2, 3]
    assert resumed[0].metrics["training_iteration"] == 4


def test_restarted_trials_begin_anew(tmp_path: Path) -> None:
    assert failing(tmp_path, ["once"]).fit().num_errors == 1
    restarted = tune.Tuner.restore(str(tmp_path / "failing"), fails_at, restart_errored=True).fit()
    assert restarted.num_errors == 0
    assert list(restarted[0].metrics_dataframe["epoch"]) == [0, 1, 2, 3]
    assert restarted[0].metrics["iterations_since_restore"] == 4


def test_a_result_without_the_metric_is_that_trials_error(tmp_path: Path) -> None:
    grid = tune.Tuner(
        doubled,
        param_space={"x": 1},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="lacking", verbose=0),
    ).fit()
    assert grid.num_errors == 1
    assert "'accuracy'" in str(grid.errors[0])
    assert "value" in str(grid.errors[0])


def test_more_samples_after_a_restore_run_only_the_new_ones(tmp_path: Path) -> None:
    first = tuner(str(tmp_path), samples=2).fit()
    config = tune.TuneConfig(metric="total", mode="max", num_samples=3)
    second = tune.Tuner.restore(str(tmp_path / "counted"), count, tune_config=config).fit()
    assert len(first) == 2
    assert len(second) == 3
    assert [result.config for result in second][:2] == [result.config for result in first]
    lines = (tmp_path / "epochs.log").read_text().splitlines()
    assert len(lines) == 3 * EPOCHS
    assert len(set(lines)) == len(lines)


def test_a_moved_experiment_is_restored_where_it_is(tmp_path: Path) -> None:
    tuner(str(tmp_path), samples=2).fit()
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "counted", tmp_path / "elsewhere" / "renamed")
    path = str(tmp_path / "elsewhere" / "renamed")
    assert tune.Tuner.can_restore(path)
    assert not tune.Tuner.can_restore(str(tmp_path / "counted"))
    grid = tune.Tuner.restore(path, count).get_results()
    assert [result.metrics["epoch"] for result in grid] == [EPOCHS] * 2
    assert all(str(result.path).startswith(path) for result in grid)
