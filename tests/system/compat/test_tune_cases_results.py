"""What Ray's own tests expect of results: a grid of them, an analysis, and what a function may return.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pandas
import pytest

from holdfast import tune
from holdfast.tune import ExperimentAnalysis, ResultGrid
from holdfast.tune.result import AUTO_RESULT_KEYS

NUMBERS = (1, 2, 3)
ONCE_A_NUMBER = 42


def saving(metrics: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state.json").write_text(json.dumps(metrics))
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def loaded(checkpoint: Any) -> dict[str, Any]:
    with checkpoint.as_directory() as directory:
        found: dict[str, Any] = json.loads(Path(directory, "state.json").read_text())
        return found


def rises_and_falls(config: dict[str, Any]) -> None:
    for step, peak in enumerate((0, config["id"], -config["id"], 0)):
        saving({"step": step, "score": config["id"], "peak": peak})


def test_a_grid_of_results(tmp_path: Path) -> None:
    run = tune.RunConfig(
        name="grid", storage_path=str(tmp_path), verbose=0, checkpoint_config=tune.CheckpointConfig(num_to_keep=2)
    )
    grid = tune.Tuner(rises_and_falls, param_space={"id": tune.grid_search([1, 2])}, run_config=run).fit()
    assert (len(grid), grid.experiment_path) == (2, str(tmp_path / "grid"))
    for arguments in ({}, {"metric": "score"}, {"mode": "max"}):
        with pytest.raises(ValueError, match="pass it here or to TuneConfig"):
            grid.get_best_result(**arguments)
    assert grid.get_best_result(metric="score", mode="max").config["id"] == 2
    assert grid.get_dataframe()["step"].to_list() == [3, 3]
    assert grid.get_dataframe(filter_metric="peak", filter_mode="max")["step"].to_list() == [1, 1]
    assert grid.get_dataframe(filter_metric="peak", filter_mode="min")["step"].to_list() == [2, 2]
    assert sorted(grid.get_dataframe()["config/id"]) == [1, 2]
    assert list(grid[1].metrics_dataframe["config/id"]) == [2] * 4
    assert (grid.errors, grid.num_errors, grid.num_terminated) == ([], 0, 2)
    for result in grid:
        assert loaded(result.checkpoint)["step"] == 3
        assert {metrics["step"] for _, metrics in result.best_checkpoints} == {2, 3}
        assert {loaded(checkpoint)["step"] for checkpoint, _ in result.best_checkpoints} == {2, 3}
    shown = repr(grid)
    assert shown.startswith("ResultGrid<[\n")
    assert "'score': 2" in shown
    assert not any(f"'{key}'" in shown for key in AUTO_RESULT_KEYS)
    moved = tmp_path / "elsewhere"
    (tmp_path / "grid").rename(moved)
    again = ResultGrid(ExperimentAnalysis(str(moved)))
    assert all(str(moved) in checkpoint.path for checkpoint, _ in again[0].best_checkpoints)


def says_nothing_or_fails(config: dict[str, Any]) -> None:
    if config.get("fails"):
        raise RuntimeError("on purpose")


def test_trials_that_report_nothing(tmp_path: Path) -> None:
    analysis = tune.run(
        says_nothing_or_fails,
        config={"fails": tune.grid_search([False, True])},
        storage_path=str(tmp_path),
        verbose=0,
        raise_on_failed_trial=False,
    )
    grid = ResultGrid(analysis)
    assert grid[0].checkpoint is None
    with pytest.raises(RuntimeError, match="No trial has reported"):
        grid.get_best_result(metric="x", mode="max")
    assert (grid.num_errors, grid.num_terminated) == (1, 1)
    assert isinstance(grid.errors[0], RuntimeError)
    assert analysis.get_best_config("x", mode="max") is None


def reports_once(_config: dict[str, Any]) -> None:
    tune.report({"x": 1})


@pytest.mark.soak
def test_the_only_trial_is_the_best(tmp_path: Path) -> None:
    run = tune.RunConfig(name="one", storage_path=str(tmp_path), verbose=0)
    assert tune.Tuner(reports_once, run_config=run).fit().get_best_result().metrics["x"] == 1


def ranges(config: dict[str, Any]) -> None:
    for step in range(1, 8):
        unknown = ONCE_A_NUMBER if step == 4 else math.nan
        metrics = {"up": step * config["id"], "down": -step * config["id"], "unknown": unknown, "step": step}
        if step <= 5:
            saving(metrics)
        else:
            tune.report(metrics)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tune.run(
        ranges,
        config={"id": tune.grid_search(list(NUMBERS))},
        metric="up",
        mode="max",
        storage_path=str(tmp_path_factory.mktemp("analysis")),
        name="analysed",
        verbose=0,
    )


def test_all_trials_of_an_analysis(analysis: Any) -> None:
    frames = analysis.trial_dataframes
    assert set(frames) == {trial.trial_id for trial in analysis.trials} == set(analysis.get_all_configs())
    for frame in frames.values():
        assert isinstance(frame, pandas.DataFrame)
        assert numpy.all(frame["up"].to_numpy() == numpy.arange(1, 8) * frame["config/id"])
        assert numpy.all(frame["down"].to_numpy() == -numpy.arange(1, 8) * frame["config/id"])
    for trial in analysis.trials:
        assert analysis.get_all_configs()[trial.trial_id] == trial.config
    assert len(analysis.results) == len(analysis.results_df) == len(NUMBERS)
    for unwanted in Path(analysis.experiment_path).glob("*/result.json"):
        unwanted.unlink()
    assert set(ExperimentAnalysis(analysis.experiment_path).trial_dataframes) == set(frames), "they are in the journal"


def test_the_best_of_an_analysis(analysis: Any) -> None:
    best = next(trial for trial in analysis.trials if trial.config["id"] == NUMBERS[-1])
    assert analysis.best_trial == analysis.get_best_trial() == best
    assert analysis.best_config == analysis.get_best_config() == best.config
    assert analysis.best_logdir == best.local_path
    assert analysis.best_checkpoint == best.checkpoint
    assert analysis.best_dataframe.equals(analysis.trial_dataframes[best.trial_id])
    assert all(analysis.best_dataframe["trial_id"] == best.trial_id)
    assert analysis.best_result["up"] == best.last_result["up"] == 21
    assert analysis.best_result_df.loc[best.trial_id, "up"] == 21
    assert analysis.results_df.loc[best.trial_id, "up"] == 21
    assert analysis.get_best_config(metric="down", mode="max")["id"] == 1
    assert not analysis.get_best_config(metric="unknown", scope="last")
    assert not analysis.get_best_trial(metric="unknown")
    assert analysis.get_best_trial(metric="unknown", filter_nan_and_inf=False)
    with pytest.raises(ValueError, match="pass metric too"):
        analysis.dataframe(mode="max")
    assert analysis.dataframe(metric="down", mode="min")["down"].min() == -21
    assert analysis.dataframe(metric="up")["up"].max() == 21


def test_checkpoints_of_an_analysis(analysis: Any) -> None:
    best = analysis.get_best_trial()
    assert loaded(analysis.get_best_checkpoint(best))["up"] == 5 * NUMBERS[-1], "only five reports have one"
    assert loaded(analysis.get_best_checkpoint(best, metric="down", mode="max"))["down"] == -NUMBERS[-1]
    assert loaded(analysis.get_best_checkpoint(best, metric="unknown"))["unknown"] == ONCE_A_NUMBER
    assert loaded(analysis.get_last_checkpoint())["step"] == 5
    assert loaded(analysis.get_last_checkpoint(trial=analysis.trials[0]))["up"] == 5 * NUMBERS[0]
    again = pickle.loads(pickle.dumps(analysis))
    assert again.get_best_trial(metric="up", mode="max").config == best.config


# What a function returns


def number(config: dict[str, Any]) -> Any:
    return config["a"]


def metrics(config: dict[str, Any]) -> Any:
    return {"m": config["a"]}


def numbers(config: dict[str, Any]) -> Any:
    for step in range(10):
        yield config["a"] + step


def rows(config: dict[str, Any]) -> Any:
    for step in range(10):
        yield {"m": config["a"] + step}


RETURNS = [(number, "_metric", 0), (metrics, "m", 0), (numbers, "_metric", 9), (rows, "m", 9)]


def returns(config: dict[str, Any]) -> Any:
    return RETURNS[config["case"]][0](config)


def test_a_function_returns_or_yields(tmp_path: Path) -> None:
    space = {"a": tune.grid_search([4, 8]), "case": tune.grid_search(list(range(len(RETURNS))))}
    for trial in tune.run(returns, config=space, storage_path=str(tmp_path), verbose=0).trials:
        _, metric, more = RETURNS[trial.config["case"]]
        assert trial.last_result[metric] == trial.config["a"] + more


class Data:
    def __init__(self) -> None:
        self.data = [0] * 500_000
        self.data[100] = 1


def with_data(_config: dict[str, Any], data: Any = None) -> None:
    data.data[101] = 2
    tune.report({"size": len(data.data), "hundred": data.data[100]})


class WithData(tune.Trainable):
    def setup(self, config: dict[str, Any], data: Any = None) -> None:
        self.data = data.data
        self.data[101] = 2

    def step(self) -> dict[str, Any]:
        return {"size": len(self.data), "hundred": self.data[100], "done": True}


@pytest.mark.parametrize("trainable", [with_data, WithData])
def test_parameters_that_all_trials_share(tmp_path: Path, trainable: Any) -> None:
    data = Data()
    given = tune.with_parameters(trainable, data=data)
    assert len(cloudpickle.dumps(given)) < 100 * 1024
    found = tune.run(given, num_samples=2, storage_path=str(tmp_path), verbose=0).trials
    assert [(t.last_result["size"], t.last_result["hundred"]) for t in found] == [(500_000, 1)] * 2
    assert data.data[101] == 0, "what a trial changes is its own"
    assert str(found[0]).startswith(f"{trainable.__name__}_")


def with_default(_config: dict[str, Any], extra: int = 4) -> None:
    tune.report({"metric": extra})


def another_with_default(_config: dict[str, Any], extra: int = 5) -> None:
    tune.report({"metric": extra})


@pytest.mark.soak
def test_two_searches_of_one_script_with_parameters(tmp_path: Path) -> None:
    first, second = tune.with_parameters(with_default, extra=8), tune.with_parameters(another_with_default, extra=9)
    options = {"metric": "metric", "mode": "max", "storage_path": str(tmp_path), "verbose": 0}
    assert [tune.run(each, **options).best_result["metric"] for each in (first, second)] == [8, 9]


def test_a_function_saves_by_itself(tmp_path: Path) -> None:
    for settings in ({"checkpoint_frequency": 1}, {"checkpoint_at_end": True}):
        config = tune.CheckpointConfig(**settings)
        with pytest.raises(ValueError, match="a function saves when it calls"):
            tune.run(reports_once, checkpoint_config=config, storage_path=str(tmp_path), verbose=0)
        run = tune.RunConfig(name="own", storage_path=str(tmp_path), verbose=0, checkpoint_config=config)
        with pytest.raises(ValueError, match="a function saves when it calls"):
            tune.Tuner(reports_once, run_config=run).fit()


def its_cpus(_config: dict[str, Any]) -> None:
    tune.report({"cpus": tune.get_context().get_trial_resources().head_cpus})


def test_a_function_allocates_resources(tmp_path: Path) -> None:
    """Written as in Ray's example: it reads the base request and the machine through private names."""
    seen = []

    def allocate(controller: Any, trial: Any, _result: dict[str, Any], scheduler: Any) -> Any:
        base = scheduler._base_trial_resources or tune.PlacementGroupFactory([{"CPU": 1, "GPU": 0}])
        free = controller._resource_updater.get_num_cpus() // max(1, len(controller.get_live_trials()))
        seen.append((trial.placement_group_factory.head_cpus, free))
        return tune.PlacementGroupFactory([{"CPU": max(base.required_resources.get("CPU", 0), free), "GPU": 0}])

    scheduler = tune.schedulers.ResourceChangingScheduler(resources_allocation_function=allocate)
    analysis = tune.run(
        its_cpus,
        scheduler=scheduler,
        stop={"training_iteration": 2},
        resources_per_trial=tune.PlacementGroupFactory([{"CPU": 0.5}]),
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert analysis.trials[0].last_result["cpus"] == seen[0][1] >= 1
    assert seen[0][0] == 0.5
    assert scheduler.base_trial_resources == tune.PlacementGroupFactory([{"CPU": 0.5}])
