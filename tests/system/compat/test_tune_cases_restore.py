"""What Ray's own tests expect of ``Tuner`` and of a restored one.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast import train, tune
from holdfast.train import checks
from holdfast.tune import ExperimentAnalysis, ResultGrid, Tuner
from holdfast.tune.search.optuna import OptunaSearch

pytestmark = pytest.mark.soak


def run_config(storage: Path, **more: Any) -> tune.RunConfig:
    return tune.RunConfig(name="tried", storage_path=str(storage), **{"verbose": 0, **more})


def saving(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state.json").write_text(json.dumps({"it": count}))
        tune.report({"it": count}, checkpoint=tune.Checkpoint.from_directory(directory))


def loaded(checkpoint: Any) -> int:
    with checkpoint.as_directory() as directory:
        return int(json.loads(Path(directory, "state.json").read_text())["it"])


def fails_or_hangs(config: dict[str, Any]) -> None:
    """It fails, or hangs, after ``epochs`` checkpoints, as long as there is a marker that says so."""
    fails, hangs = config["markers"]
    checkpoint = tune.get_checkpoint()
    count = loaded(checkpoint) if checkpoint else 0
    for _ in range(config.get("epochs", 1)):
        count += 1
        saving(count)
    if fails and fails.exists():
        raise RuntimeError("I am failing")
    while hangs and hangs.exists():
        time.sleep(0.02)
    saving(count + 1)


class FailsToo(tune.Trainable):
    def step(self) -> dict[str, Any]:
        fails, _ = self.config["markers"]
        if self.iteration == 2 and fails and fails.exists():
            raise RuntimeError("I am failing")
        return {"it": self.iteration + 1, "done": self.iteration >= 4}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "state.json").write_text(json.dumps({"it": self.iteration}))

    def load_checkpoint(self, checkpoint: Any) -> None: ...


def returns(_config: dict[str, Any]) -> Any:
    return 1


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    found = tmp_path / "marker"
    found.touch()
    return found


def test_a_finished_search_is_read_again(tmp_path: Path) -> None:
    config = tune.TuneConfig(num_samples=4, metric="_metric", mode="max")
    Tuner(returns, tune_config=config, run_config=run_config(tmp_path)).fit()
    tuner = Tuner.restore(str(tmp_path / "tried"), trainable=returns)
    for grid in (tuner.get_results(), tuner.fit()):
        assert len(grid) == 4
        assert grid.get_best_result().metrics["_metric"] == 1


@pytest.mark.parametrize(("how", "expected"), [("resume_errored", [2, 3, 2, 3]), ("restart_errored", [2, 2, 2, 2])])
def test_failed_trials_continue_or_begin_again(tmp_path: Path, marker: Path, how: str, expected: list[int]) -> None:
    markers = [(None, None), (marker, None), (None, None), (marker, None)]
    space = {"id": tune.grid_search([0, 1, 2, 3]), "markers": tune.sample_from(lambda config: markers[config["id"]])}
    grid = Tuner(fails_or_hangs, param_space=space, run_config=run_config(tmp_path)).fit()
    assert ([result.metrics["it"] for result in grid], grid.num_errors) == ([2, 1, 2, 1], 2)
    marker.unlink()
    tuner = Tuner.restore(str(tmp_path / "tried"), fails_or_hangs, param_space=space, **{how: True})
    assert [result.metrics["it"] for result in tuner.get_results()] == [2, 1, 2, 1]
    grid = tuner.fit()
    assert ([result.metrics["it"] for result in grid], grid.num_errors) == (expected, 0)


class StopsTheDriver(tune.Callback):
    """When two trials have ended, and the others have reported or wait."""

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        ended = [trial for trial in trials if trial.status in ("TERMINATED", "ERROR")]
        if len(ended) == 2 and any(trial.status == "RUNNING" and trial.checkpoint for trial in trials):
            raise RuntimeError("Failing")


RESUMED = [({}, [1, 2, 2, 3], 1), ({"resume_unfinished": False, "resume_errored": True}, [1, 2, 2, 3], 0)]


@pytest.mark.parametrize(("settings", "expected", "errors"), RESUMED, ids=["unfinished", "errored"])
def test_a_callback_that_raises_ends_the_driver_and_the_rest_resumes(
    tmp_path: Path, settings: dict[str, Any], expected: list[int], errors: int
) -> None:
    fails, hangs = tmp_path / "fails", tmp_path / "hangs"
    fails.touch()
    hangs.touch()
    space = {"markers": tune.grid_search([(None, None), (fails, None), (None, hangs), (None, hangs)])}
    run, config = run_config(tmp_path, callbacks=[StopsTheDriver()]), tune.TuneConfig(max_concurrent_trials=1)
    with pytest.raises(RuntimeError, match="Failing"):
        Tuner(fails_or_hangs, param_space=space, run_config=run, tune_config=config).fit()
    fails.unlink()
    hangs.unlink()
    tuner = Tuner.restore(str(tmp_path / "tried"), fails_or_hangs, run_config=run_config(tmp_path), **settings)
    grid = tuner.fit()
    assert sorted(result.metrics["it"] for result in grid if result.metrics) == expected
    assert grid.num_errors == errors, "the last trial was not created before; in Ray it was, and would be skipped"


def fails_at_first(config: dict[str, Any]) -> None:
    saving(config["data"])
    raise RuntimeError("Failing!")


def another(config: dict[str, Any]) -> None: ...


def test_the_trainable_of_a_restore(tmp_path: Path) -> None:
    Tuner(fails_at_first, param_space={"data": 1}, run_config=run_config(tmp_path)).fit()
    for wrong in ("abcd", another, FailsToo):
        with pytest.raises(ValueError):
            Tuner.restore(str(tmp_path / "tried"), trainable=wrong, resume_errored=True)

    def changed(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        assert checkpoint is not None
        assert loaded(checkpoint) == config["data"]

    changed.__name__ = fails_at_first.__name__
    assert not Tuner.restore(str(tmp_path / "tried"), trainable=changed, resume_errored=True).fit().errors


def with_data(config: dict[str, Any], text: Any = None, data: Any = None) -> None:
    assert (text, len(data)) == ("data", 1000)
    fails_or_hangs({"markers": (config["marker"], None)})


class WithData(FailsToo):
    def setup(self, config: dict[str, Any], text: Any = None, data: Any = None) -> None:
        assert (text, len(data)) == ("data", 1000)
        self.config["markers"] = (config["marker"], None)


@pytest.mark.parametrize("trainable", [with_data, WithData])
def test_parameters_are_passed_again(tmp_path: Path, marker: Path, trainable: Any) -> None:
    def given() -> Any:
        return tune.with_parameters(trainable, text="data", data=list(range(1000)))

    assert Tuner(given(), param_space={"marker": marker}, run_config=run_config(tmp_path)).fit().errors
    marker.unlink()
    assert not Tuner.restore(str(tmp_path / "tried"), trainable=given(), resume_errored=True).fit().errors


@pytest.mark.parametrize("is_old_way", [False, True])
def test_an_experiment_that_was_moved_and_renamed(tmp_path: Path, marker: Path, is_old_way: bool) -> None:
    run = run_config(tmp_path / "old", checkpoint_config=tune.CheckpointConfig(num_to_keep=2))
    Tuner(fails_or_hangs, param_space={"markers": (marker, None)}, run_config=run).fit()
    new = tmp_path / "new" / "renamed"
    shutil.move(tmp_path / "old", tmp_path / "new")
    (tmp_path / "new" / "tried").rename(new)
    grid = ResultGrid(ExperimentAnalysis(str(new)))
    assert (grid.num_errors, grid[0].metrics["training_iteration"]) == (1, 1)
    assert grid[0].checkpoint.path.startswith(f"{new}/")
    marker.unlink()
    if is_old_way:
        where = {"name": "renamed", "storage_path": str(new.parent), "verbose": 0}
        config = tune.CheckpointConfig(num_to_keep=2)
        space = {"markers": (marker, None)}
        grid = ResultGrid(
            tune.run(fails_or_hangs, config=space, resume="AUTO+ERRORED", checkpoint_config=config, **where)
        )
    else:
        grid = Tuner.restore(str(new), trainable=fails_or_hangs, resume_errored=True).fit()
    assert (grid.num_errors, grid[0].metrics["training_iteration"]) == (0, 3)
    assert [loaded(checkpoint) for checkpoint, _ in grid[0].best_checkpoints] == [2, 3]
    assert not (tmp_path / "old").exists()


@pytest.mark.parametrize("kind", ["function", "class", "trainer"])
def test_checkpoints_after_a_restore(tmp_path: Path, marker: Path, kind: str) -> None:
    """Numbers continue, and those of the first run count for ``num_to_keep``."""
    space: dict[str, Any] = {"markers": (marker, None), "epochs": 2}
    trainable: Any = fails_or_hangs
    settings: dict[str, Any] = {"num_to_keep": 4}
    if kind == "class":
        trainable, settings = FailsToo, {"num_to_keep": 4, "checkpoint_frequency": 1}
    if kind == "trainer":
        scaling = train.ScalingConfig(num_workers=1)
        trainable = train.DataParallelTrainer(fails_or_hangs, scaling_config=scaling)
        space = {"train_loop_config": space}
    run = run_config(tmp_path, checkpoint_config=tune.CheckpointConfig(**settings))
    result = Tuner(trainable, param_space=space, run_config=run).fit()[0]
    assert [loaded(checkpoint) for checkpoint, _ in result.best_checkpoints] == [1, 2]
    marker.unlink()
    grid = Tuner.restore(str(tmp_path / "tried"), trainable=trainable, resume_errored=True).fit()
    assert (grid.num_errors, grid[0].metrics["training_iteration"]) == (0, 5)
    assert [loaded(checkpoint) for checkpoint, _ in grid[0].best_checkpoints] == [2, 3, 4, 5]
    assert len(os.listdir(Path(grid[0].path, "checkpoints"))) == 2 * 4, "each has a manifest"


class OwnSearcher(OptunaSearch):
    counter = 0

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        super().on_trial_result(trial_id, result)
        self.counter += 1


class OwnScheduler(tune.schedulers.ASHAScheduler):
    counter = 0

    def on_trial_result(self, experiment: Any, trial: Any, result: Any) -> Any:
        self.counter += 1
        return super().on_trial_result(experiment, trial, result)


def test_a_searcher_and_a_scheduler_of_ones_own_are_passed_again(tmp_path: Path, marker: Path) -> None:
    space = {"a": tune.uniform(0, 1), "markers": (marker, None)}
    searcher, scheduler = OwnSearcher(seed=1), OwnScheduler()
    config = tune.TuneConfig(search_alg=searcher, scheduler=scheduler, metric="it", mode="max")
    Tuner(fails_or_hangs, param_space=space, tune_config=config, run_config=run_config(tmp_path)).fit()
    assert (searcher.counter, scheduler.counter) == (1, 1)
    marker.unlink()
    searcher, scheduler = OwnSearcher(seed=1), OwnScheduler()
    config = tune.TuneConfig(search_alg=searcher, scheduler=scheduler, metric="it", mode="max")
    Tuner.restore(str(tmp_path / "tried"), fails_or_hangs, resume_errored=True, tune_config=config).fit()
    assert (searcher.counter, scheduler.counter) == (3, 3), "the first result is told again"


def test_where_there_is_an_experiment(tmp_path: Path) -> None:
    Tuner(returns, run_config=run_config(tmp_path)).fit()
    assert Tuner.can_restore(tmp_path / "tried")
    assert Tuner.can_restore(tmp_path / "tried", storage_filesystem=pyarrow.fs.LocalFileSystem())
    assert not Tuner.can_restore(tmp_path)
    assert not Tuner.can_restore(tmp_path / "tried" / "other")


def test_the_space_of_a_restore(tmp_path: Path) -> None:
    space = {"a": 1, "b": {"c": tune.choice([0, 1])}, "d": tune.uniform(0, 1)}
    Tuner(returns, param_space=space, run_config=run_config(tmp_path)).fit()
    for wrong in ({}, {"a": 1, "b": {}, "d": 2}, {"a": 1, "b": {"c": 2, "e": 3}, "d": 4}):
        with pytest.raises(ValueError, match="the same keys as the original"):
            Tuner.restore(str(tmp_path / "tried"), returns, param_space=wrong)
    Tuner.restore(str(tmp_path / "tried"), trainable=returns, param_space=space)


class Dataset:
    def __init__(self, name: int) -> None:
        self.name = name


class StopsAfterTwo(tune.Callback):
    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if sum(trial.status == "ERROR" for trial in trials) >= 2:
            raise RuntimeError("Failing")


def test_objects_of_the_space_are_passed_again(tmp_path: Path) -> None:
    def space(first: int) -> dict[str, Any]:
        names = range(first, first + 5)
        x, y = ([Dataset(name) for name in names[:2]], [Dataset(name) for name in names[2:]])
        return {"x": tune.grid_search(x), "y": tune.grid_search(y)}

    def named(_config: dict[str, Any]) -> None:
        raise RuntimeError("Failing!")

    run = run_config(tmp_path, callbacks=[StopsAfterTwo()])
    with pytest.raises(RuntimeError, match="Failing"):
        Tuner(named, param_space=space(1), run_config=run).fit()

    def again(config: dict[str, Any]) -> None: ...

    again.__name__ = "named"
    tuner = Tuner.restore(
        str(tmp_path / "tried"),
        trainable=again,
        param_space=space(11),
        resume_errored=True,
        run_config=run_config(tmp_path),
    )
    grid = tuner.fit()
    assert (len(grid), grid.num_errors) == (6, 0)
    assert {(result.config["x"].name, result.config["y"].name) for result in grid} == {
        (x, y) for x in (11, 12) for y in (13, 14, 15)
    }


# Tuner itself


def test_options_that_a_trainer_as_a_trainable_does_not_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_warned", set())
    for settings in ({"checkpoint_at_end": True}, {"checkpoint_frequency": 1}):
        run = run_config(tmp_path, checkpoint_config=tune.CheckpointConfig(**settings))
        with pytest.warns(UserWarning, match=f"{next(iter(settings))}.* has no effect"):
            Tuner(train.DataParallelTrainer(lambda _config: 1), run_config=run).fit()


def test_checkpoints_of_a_function_need_no_settings(tmp_path: Path) -> None:
    for at_end in (False, None):
        run = run_config(tmp_path / str(at_end), checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=at_end))
        assert not Tuner(returns, run_config=run).fit().errors


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError):
        Tuner(lambda _config: print(lock), run_config=run_config(tmp_path)).fit()


def test_a_trainer_brings_its_run_config(tmp_path: Path) -> None:
    def loops(_config: dict[str, Any]) -> None:
        for step in range(10):
            train.report({"metric": step})

    trainer = train.DataParallelTrainer(loops, run_config=run_config(tmp_path, stop={"metric": 4}))
    assert Tuner(trainer).fit()[0].metrics["metric"] == 4


def steps_of_a_grid(config: dict[str, Any]) -> None:
    train.report({"loss": config["batch_size"] * config["epochs"], "workers": train.get_context().get_world_size()})


def test_a_trainer_with_a_grid_in_all_its_parts(tmp_path: Path) -> None:
    trainer = train.DataParallelTrainer(steps_of_a_grid, train_loop_config={"lr": 0.01, "batch_size": 4, "epochs": 10})
    space = {
        "scaling_config": train.ScalingConfig(num_workers=tune.grid_search([1, 2]), resources_per_worker={"CPU": 0.2}),
        "train_loop_config": {"batch_size": tune.grid_search([4, 8]), "epochs": tune.grid_search([5, 10])},
    }
    config = tune.TuneConfig(mode="min", metric="loss")
    grid = Tuner(trainer, param_space=space, tune_config=config, run_config=run_config(tmp_path)).fit()
    assert len(grid) == 8
    assert {(r.metrics["workers"], r.metrics["loss"]) for r in grid} == {(w, x) for w in (1, 2) for x in (20, 40, 80)}


@pytest.mark.parametrize("way", ["config", "variable", "neither"])
def test_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    (tmp_path / "script").mkdir()
    monkeypatch.chdir(tmp_path / "script")
    Path("read.txt").write_text("data")
    if way == "variable":
        monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")

    def looks(_config: dict[str, Any]) -> None:
        origin = Path(os.environ["TUNE_ORIG_WORKING_DIR"]) if way == "neither" else Path()
        assert (origin / "read.txt").read_text() == "data"
        assert (Path.cwd() != tmp_path / "script") == (way == "neither")
        Path(tune.get_context().get_trial_dir(), "write.txt").touch()

    config = tune.TuneConfig(chdir_to_trial_dir=False) if way == "config" else None
    space = {"id": tune.grid_search([0, 1])}
    grid = Tuner(looks, param_space=space, tune_config=config, run_config=run_config(tmp_path)).fit()
    assert not grid.errors
    assert all(Path(result.path, "write.txt").exists() for result in grid)
