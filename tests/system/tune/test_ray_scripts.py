"""What scripts written for Ray Tune do, and expect to work: each of these failed once."""

from __future__ import annotations

import datetime
import math
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import holdfast
from holdfast import train, tune
from holdfast.errors import TrainingFailedError
from holdfast.tune.search import ConcurrencyLimiter, Searcher


def run_config(storage: Path, **more: Any) -> tune.RunConfig:
    return tune.RunConfig(storage_path=str(storage), name="scripts", **{"verbose": 0, **more})


def three_steps(config: dict[str, Any]) -> None:
    for step in range(3):
        metrics = {"step": step, "timesteps_this_iter": 20, "eval": {"loss": 3 - step}, "ready": step == 1}
        tune.report({**metrics, "x": config.get("x")})


class ByName(tune.Callback):
    """Takes what it needs by name, in an order of its own."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, bool]] = []
        self.resources: Any = None
        self.ends = 0

    def on_trial_result(self, trial: Any, result: dict[str, Any], **info: Any) -> None:
        assert info["iteration"] >= 0
        assert len(info["trials"]) == 2
        self.resources = trial.placement_group_factory
        self.seen.append((trial.trainable_name, trial.experiment_tag, trial.path, trial.is_finished()))

    def on_trial_complete(self, trial: Any, **info: Any) -> None:
        self.ends += trial.is_finished()

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        assert all(trial.is_finished() and trial.get_error() is None for trial in trials)


def test_callbacks_are_called_by_keyword_and_trials_have_what_rays_have(tmp_path: Path) -> None:
    callback = ByName()
    space = {"x": tune.grid_search([1, 2])}
    run = run_config(tmp_path, callbacks=[callback], verbose=False)
    grid = tune.Tuner(tune.with_resources(three_steps, {"cpu": 1}), param_space=space, run_config=run).fit()
    paths = [result.path for result in grid]
    assert {seen[:3] for seen in callback.seen} == {
        ("three_steps", f"{number}_x={number + 1}", paths[number]) for number in (0, 1)
    }
    assert not any(seen[3] for seen in callback.seen)
    assert callback.ends == 2
    assert callback.resources == tune.PlacementGroupFactory([{"CPU": 1.0}])


STOPS: list[tuple[Any, int]] = [
    ({"ready": True}, 2),
    ({"eval": {"loss": 3}}, 1),
    ({"timesteps_total": 40}, 2),
    ({"done": True}, 3),
]


@pytest.mark.parametrize(("stop", "expected"), STOPS, ids=str)
def test_stop_criteria(tmp_path: Path, stop: Any, expected: int) -> None:
    result = tune.Tuner(three_steps, run_config=run_config(tmp_path, stop=stop)).fit()[0]
    assert result.metrics["training_iteration"] == expected
    assert result.metrics["timesteps_total"] == 20 * expected
    assert result.metrics["pid"] > 0


def counts_workers() -> None:
    train.report({"workers": train.get_context().get_world_size()})


def test_the_number_of_workers_can_be_searched(tmp_path: Path) -> None:
    scaling = train.ScalingConfig(num_workers=tune.grid_search([1, 2]), resources_per_worker={"CPU": 0.5})
    with pytest.raises(ValueError, match="param_space"):
        train.DataParallelTrainer(counts_workers, scaling_config=scaling, run_config=run_config(tmp_path)).fit()
    trainer = train.DataParallelTrainer(counts_workers)
    grid = tune.Tuner(trainer, param_space={"scaling_config": scaling}, run_config=run_config(tmp_path)).fit()
    assert [result.metrics["workers"] for result in grid] == [1, 2]


class Own(Searcher):
    """Written before searchers were told of seeds."""

    def __init__(self) -> None:
        super().__init__("x", "max")
        self.suggested: list[int] = []
        self.completed: list[int] = []

    def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.suggested.append(len(self.suggested) + 1)
        return {"x": self.suggested[-1]}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.completed.append(result["x"])


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_searcher_of_ones_own_can_be_looked_at_and_used_again(tmp_path: Path, is_wrapped: bool) -> None:
    own = Own()
    searcher = ConcurrencyLimiter(own, max_concurrent=1) if is_wrapped else own
    for storage in ("first", "second"):
        config = tune.TuneConfig(metric="x", mode="max", search_alg=searcher, num_samples=2, max_concurrent_trials=1)
        grid = tune.Tuner(three_steps, tune_config=config, run_config=run_config(tmp_path / storage)).fit()
        assert [result.config["x"] for result in grid] == [1, 2], "the second search begins where the first one ended"
        assert own.suggested == [1, 2]
        assert own.completed == [1, 2]


def reports_anything(_config: dict[str, Any]) -> None:
    now = datetime.datetime(2026, 11, 17, 23, 0)
    matrix = numpy.arange(4).reshape(2, 2)
    tune.report({"matrix": matrix, "names": {"a", "b"}, "when": now, "where": Path("/x"), "object": Own(), "x": 1})
    tune.report({"matrix": matrix + 1, "names": {"c"}, "when": now, "where": Path("/x"), "object": print, "x": 2})


def test_metrics_of_any_type(tmp_path: Path) -> None:
    result = tune.Tuner(reports_anything, run_config=run_config(tmp_path)).fit()[0]
    assert result.error is None
    assert (result.metrics["matrix"] == [[1, 2], [3, 4]]).all()
    assert result.metrics["names"] == {"c"}
    assert result.metrics["when"] == datetime.datetime(2026, 11, 17, 23, 0)
    assert result.metrics["where"] == Path("/x")
    assert result.metrics["object"] == "<built-in function print>"
    assert list(result.metrics_dataframe["object"]) == [f"<{Own.__module__}.Own>", "<built-in function print>"]


def says_nothing(config: dict[str, Any]) -> None:
    if config["fails"]:
        raise OwnError("too small", code=7)


class OwnError(ValueError):
    def __init__(self, text: str, *, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


def test_errors_are_the_users_and_results_can_be_pickled(tmp_path: Path) -> None:
    space = {"fails": tune.grid_search([False, True])}
    grid = tune.Tuner(says_nothing, param_space=space, run_config=run_config(tmp_path)).fit()
    assert grid[0].metrics == {}, "it never reported"
    for results in (grid, pickle.loads(pickle.dumps(grid))):
        assert results.num_errors == 1
        (error,) = results.errors
        assert isinstance(error, OwnError)
        assert isinstance(error, TrainingFailedError)
        assert error.code == 7
        assert "too small" in str(error)
        assert len(results) == 2


def test_a_pickled_result_has_its_reports(tmp_path: Path) -> None:
    grid = tune.Tuner(three_steps, run_config=run_config(tmp_path)).fit()
    again = pickle.loads(pickle.dumps(grid))
    assert list(again[0].metrics_dataframe["step"]) == [0, 1, 2]
    assert again.get_best_result("step", "max", scope="avg").metrics == grid[0].metrics
    assert list(pickle.loads(pickle.dumps(grid[0])).metrics_dataframe["step"]) == [0, 1, 2]


def test_fail_fast_raises_the_users_exception(tmp_path: Path) -> None:
    run = run_config(tmp_path, failure_config=tune.FailureConfig(fail_fast="raise"))
    with pytest.raises(OwnError, match="too small"):
        tune.Tuner(says_nothing, param_space={"fails": True}, run_config=run).fit()


def test_a_restored_space_must_have_the_same_nested_keys(tmp_path: Path) -> None:
    space = {"x": 1, "model": {"units": 8, "rate": tune.uniform(0, 1)}}
    tune.Tuner(three_steps, param_space=space, run_config=run_config(tmp_path)).fit()
    other = {"x": 1, "model": {"units": 8, "decay": tune.uniform(0, 1)}}
    with pytest.raises(ValueError, match="missing: model/rate; new: model/decay"):
        tune.Tuner.restore(str(tmp_path / "scripts"), three_steps, param_space=other)
    tune.Tuner.restore(str(tmp_path / "scripts"), three_steps, param_space=space)


@pytest.fixture
def machine() -> Iterator[None]:
    holdfast.init(num_cpus=3, resources={"tokens": 2})
    yield
    holdfast.shutdown()


def runs_beside_others(_config: dict[str, Any]) -> dict[str, Any]:
    return {"x": 1}


@pytest.mark.usefixtures("machine")
def test_init_says_what_trials_share(tmp_path: Path) -> None:
    assert holdfast.cluster_resources()["CPU"] == 3
    assert holdfast.cluster_resources()["tokens"] == 2
    fits = tune.with_resources(runs_beside_others, {"cpu": 3, "tokens": 2})
    grid = tune.Tuner(fits, run_config=run_config(tmp_path / "fits")).fit()
    assert grid.num_errors == 0
    for request in ({"cpu": 4}, {"cpu": 1, "tokens": 3}):
        fits = tune.with_resources(runs_beside_others, request)
        grid = tune.Tuner(fits, run_config=run_config(tmp_path / str(request))).fit()
        assert "there is only" in str(grid.errors[0])


def test_init_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="num_cpus"):
        holdfast.init(num_cpus=-1)
    with pytest.raises(ValueError, match='unheard is for engine="ray"'):
        holdfast.init(unheard=1)
    with pytest.warns(UserWarning, match="include_dashboard"):
        holdfast.init(include_dashboard=False)
    holdfast.shutdown()


def reports_for_ever(_config: dict[str, Any]) -> None:
    while True:
        tune.report({"x": 1})
        time.sleep(0.01)


class Interrupts(tune.Callback):
    """Twice: at the first result of each trial."""

    def __init__(self) -> None:
        self.statuses: list[str] = []

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        if result["training_iteration"] == 1:
            os.kill(os.getpid(), signal.SIGINT)

    def on_experiment_end(self, trials: Any, **info: Any) -> None:
        self.statuses = [trial.status for trial in trials]


def test_nothing_is_said_to_run_after_a_second_interrupt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = Interrupts()
    run = run_config(tmp_path, callbacks=[callback], progress_reporter=tune.CLIReporter(), verbose=1)
    with pytest.raises(KeyboardInterrupt):
        tune.Tuner(reports_for_ever, param_space={"x": tune.grid_search([1, 2])}, run_config=run).fit()
    assert callback.statuses == ["PENDING", "PENDING"]
    last = capsys.readouterr().out.rpartition("trials: ")[2]
    assert "2 PENDING" in last
    assert "RUNNING" not in last


# Where Holdfast differs on purpose; docs/moving-from-ray.md has a line for each


def saves(_config: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "file").touch()
        tune.report({"x": math.nan}, checkpoint=tune.Checkpoint.from_directory(directory))


def test_a_tuner_writes_nothing_before_fit_and_checkpoints_have_a_directory(tmp_path: Path) -> None:
    tuner = tune.Tuner(saves, run_config=run_config(tmp_path))
    assert not tune.Tuner.can_restore(tmp_path / "scripts")
    assert not list(tmp_path.iterdir())
    result = tuner.fit()[0]
    assert tune.Tuner.can_restore(tmp_path / "scripts")
    assert Path(result.checkpoint.path).parent == Path(result.path, "checkpoints")


def scores(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config["x"]}


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_score_that_is_no_number_is_never_the_best(tmp_path: Path, mode: str) -> None:
    space = {"x": tune.grid_search([math.nan, 1.0, math.inf, -math.inf])}
    config = tune.TuneConfig(metric="x", mode=mode)
    grid = tune.Tuner(scores, param_space=space, tune_config=config, run_config=run_config(tmp_path)).fit()
    assert grid.get_best_result().metrics["x"] == 1.0
