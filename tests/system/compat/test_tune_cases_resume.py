"""What Ray's own tests expect of ``tune.run(resume=...)``, of trainables that are used again, and of checkpoints.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.tune.search import BasicVariantGenerator
from holdfast.tune.search.optuna import OptunaSearch


class Steps(tune.Trainable):
    resets = 0

    def setup(self, config: dict[str, Any]) -> None:
        self.iterations = 0

    def step(self) -> dict[str, Any]:
        self.iterations += 1
        return {"step": self.iteration + 1, "num_resets": self.resets, "pid_of_step": os.getpid()}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"test": self.iterations}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.iterations = checkpoint["test"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.resets += 1
        return True


class Fails(tune.Callback):
    def __init__(self, trials: int) -> None:
        self.trials = trials

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        if len(trials) >= self.trials:
            raise RuntimeError("no further")


class Sees(tune.Callback):
    """How many trials there are at the first step, and what they need."""

    def __init__(self) -> None:
        self.trials: int | None = None
        self.cpus: set[float] = set()

    def on_step_begin(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        if self.trials is None:
            self.trials = len(trials)
        waiting = [trial for trial in trials if trial.status == "PENDING"]
        self.cpus |= {trial.placement_group_factory.required_resources["CPU"] for trial in waiting}


GRID = {"test": tune.grid_search([1, 2, 3]), "test2": tune.grid_search([1, 2, 3])}


def run(tmp_path: Path, trainable: Any = Steps, **more: Any) -> Any:
    options = {"name": "search", "storage_path": str(tmp_path), "verbose": 0, "stop": {"training_iteration": 1}}
    return tune.run(trainable, **{**options, **more})


@pytest.mark.soak
@pytest.mark.parametrize("after", [2, 6], ids=["within the points", "after the points"])
def test_a_search_with_points_resumes_where_its_driver_failed(tmp_path: Path, after: int) -> None:
    points = [{"test": -1, "test2": -1}, {"test": -1}, {"test2": -1}]

    def again(**more: Any) -> Any:
        with pytest.warns(UserWarning, match="param_space says"):
            return run(
                tmp_path,
                config=GRID,
                num_samples=4,
                search_alg=BasicVariantGenerator(points_to_evaluate=points),
                **more,
            )

    with pytest.raises(RuntimeError, match="no further"):
        again(callbacks=[Fails(after)])
    sees = Sees()
    analysis = again(resume=True, callbacks=[sees])
    assert sees.trials is not None
    assert sees.trials >= after
    for name in ("test", "test2"):
        found = Counter(trial.config[name] for trial in analysis.trials)
        assert found.pop(-1) == 4
        assert set(found.values()) == {4}
    assert len(analysis.trials) == 1 + 3 + 3 + 9


@pytest.mark.soak
def test_a_search_that_resumes_may_need_other_resources(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no further"):
        run(tmp_path, config=GRID, callbacks=[Fails(3)])
    sees = Sees()
    analysis = run(tmp_path, config=GRID, resume=True, resources_per_trial={"cpu": 2}, callbacks=[sees])
    assert len(analysis.trials) == 9
    assert sees.cpus == {2}, "also of the trials that were there before"


@pytest.mark.soak
def test_a_search_in_a_thread(tmp_path: Path) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(run(tmp_path).trials))
    thread.start()
    thread.join(60)
    assert [trial.last_result["step"] for trial in found] == [1]


@pytest.mark.soak
def test_the_checkpoint_that_a_search_starts_from_stays(tmp_path: Path) -> None:
    keep = {"checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=1)}
    first = run(tmp_path, name="first", **keep)
    checkpoint = first.get_last_checkpoint(first.trials[0])
    run(tmp_path, name="second", restore=checkpoint.path, stop={"training_iteration": 3}, **keep)
    assert os.listdir(checkpoint.path)


@pytest.mark.soak
def test_an_error_of_a_trial_is_raised_with_fail_fast(tmp_path: Path) -> None:
    def fails(_config: dict[str, Any]) -> None:
        tune.report({"a": 1})
        raise RuntimeError("Error happens in trainable!!")

    with pytest.raises(RuntimeError, match="Error happens in trainable!!"):
        run(tmp_path, fails, fail_fast="raise", stop=None)


@pytest.mark.soak
def test_trainables_are_not_used_again(tmp_path: Path) -> None:
    """Each trial has a process of its own, and ``reset_config`` is never called: Ray counts resets."""
    with pytest.warns(UserWarning, match="reuse_actors"):
        analysis = run(tmp_path, config={"id": tune.grid_search([0, 1, 2])}, reuse_actors=True, max_concurrent_trials=1)
    assert [trial.config["id"] for trial in analysis.trials] == [0, 1, 2]
    assert [trial.last_result["num_resets"] for trial in analysis.trials] == [0, 0, 0]
    assert len({trial.last_result["pid_of_step"] for trial in analysis.trials}) == 3


@pytest.mark.soak
def test_experiments_run_one_after_the_other(tmp_path: Path) -> None:
    """Ray runs them at the same time, unless ``concurrent=False``."""

    def notes(_config: dict[str, Any]) -> None:
        begun = time.monotonic()
        time.sleep(0.1)
        tune.report({"begun": begun, "ended": time.monotonic()})

    names = ("first", "second")
    given = [tune.Experiment(name, notes, storage_path=str(tmp_path)) for name in names]
    first, second = (trial.last_result for trial in tune.run_experiments(given, verbose=0))
    assert first["ended"] < second["begun"]


def test_names_of_train_are_those_of_tune() -> None:
    """Ray warns of those of ``ray.train`` in a search."""
    for name in ("Checkpoint", "CheckpointConfig", "FailureConfig", "RunConfig", "SyncConfig"):
        assert getattr(train, name) is getattr(tune, name)


# Checkpoints at a frequency


def saves_each_third(_config: dict[str, Any] | None = None) -> None:
    for step in range(1, 10):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "data.ckpt").write_text(str(step))
            checkpoint = train.Checkpoint.from_directory(directory)
            train.report({"step": step}, checkpoint=checkpoint if step % 3 == 0 else None)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["class", "function", "trainer"])
def test_each_third_result_has_a_checkpoint(tmp_path: Path, kind: str) -> None:
    trainables = {
        "class": Steps,
        "function": saves_each_third,
        "trainer": train.DataParallelTrainer(saves_each_third, scaling_config=train.ScalingConfig(num_workers=1)),
    }
    frequency = {"checkpoint_frequency": 3} if kind == "class" else {}
    config = tune.RunConfig(
        name="search",
        storage_path=str(tmp_path),
        verbose=0,
        stop={"training_iteration": 9} if kind == "class" else None,
        checkpoint_config=tune.CheckpointConfig(**frequency),
    )
    (result,) = tune.Tuner(trainables[kind], run_config=config).fit()
    found = [(metrics["step"], Path(checkpoint.path).name[-1]) for checkpoint, metrics in result.best_checkpoints]
    assert [step for step, _ in found] == [3, 6, 9]


# Searchers and trainables by themselves


def test_a_searcher_is_saved_in_a_directory(tmp_path: Path) -> None:
    space = {"x": tune.uniform(0, 1)}
    first, second = (OptunaSearch(space, metric="score", mode="max", seed=3) for _ in range(2))
    drawn = [first.suggest(str(number)) for number in range(3)]
    assert all(drawn)
    first.save(str(tmp_path / "state"))
    second.restore(str(tmp_path / "state"))
    assert first.suggest("next") == second.suggest("next")


class Saving(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"metric": 2}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        if self.config.get("returns") == "object":
            return {"data": 1}
        Path(checkpoint_dir, "subdir").mkdir()
        Path(checkpoint_dir, "subdir", "data").write_text("1")
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        assert checkpoint == {"data": 1} if self.config.get("returns") == "object" else os.listdir(checkpoint)


@pytest.mark.parametrize("returns", ["object", "root"])
def test_a_trainable_restores_what_it_saved(tmp_path: Path, returns: str) -> None:
    trainable, other = Saving({"returns": returns}), Saving({"returns": returns})
    trainable.train()
    place = tmp_path / "saved"
    place.mkdir()
    trainable.save(str(place))
    other.restore(str(place))
    assert other.iteration == 1
