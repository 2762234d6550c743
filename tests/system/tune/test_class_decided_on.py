"""Class trainables under schedulers: what a decision leaves or takes up again is saved, and nothing in between."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from holdfast.worker import session


class Climber(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.height = 0.0

    def step(self) -> dict[str, Any]:
        self.height += self.config["rate"]
        with Path(self.config["notes"], "saves").open("a") as file:
            file.write(f"{self.trial_id} {self.iteration + 1} step\n")
        return {"height": self.height, "done": self.iteration + 1 == 12}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        with Path(self.config["notes"], "saves").open("a") as file:
            file.write(f"{self.trial_id} {self.iteration} save\n")
        return {"height": self.height}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.height = checkpoint["height"]


def fit(directory: Path, scheduler: TrialScheduler, rates: list[float], **checkpoints: Any) -> Any:
    return tune.Tuner(
        Climber,
        param_space={"rate": tune.grid_search(rates), "notes": str(directory)},
        tune_config=tune.TuneConfig(metric="height", mode="max", scheduler=scheduler, max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="climb",
            storage_path=str(directory),
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(**checkpoints),
        ),
    ).fit()


def saves(directory: Path, trial: str) -> list[int]:
    lines = [line.split() for line in (directory / "saves").read_text().splitlines()]
    return [int(step) for id, step, what in lines if id == trial and what == "save"]


def test_the_end_that_a_scheduler_decides_on_is_saved_too(tmp_path: Path) -> None:
    results = fit(tmp_path, ASHAScheduler(max_t=12, grace_period=3), [3.0, 2.0, 1.0], checkpoint_at_end=True)
    assert [result.metrics["training_iteration"] for result in results] == [12, 3, 3]
    for result in results:
        last = result.metrics["training_iteration"]
        with result.checkpoint.as_directory() as directory:
            again = Climber(config={**result.config, "rate": 0.0})
            again.restore(directory)
        assert (again.iteration, again.height) == (last, result.config["rate"] * last)
    assert saves(tmp_path, results[0].metrics["trial_id"]) == [3, 12]  # at the rungs


def test_by_default_an_end_is_saved_that_the_class_knows_of(tmp_path: Path) -> None:
    results = fit(tmp_path, ASHAScheduler(max_t=20, grace_period=3), [3.0, 1.0])
    assert [result.metrics["training_iteration"] for result in results] == [12, 3]
    assert [saves(tmp_path, result.metrics["trial_id"]) for result in results] == [[12], []]


def test_a_class_saves_where_its_scheduler_may_take_over_or_pause(tmp_path: Path) -> None:
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=4,
        hyperparam_mutations={"rate": [1.0, 2.0, 4.0]},
        quantile_fraction=0.5,
        seed=3,
    )
    results = fit(tmp_path, scheduler, [1.0, 4.0])
    assert not results.errors
    assert [result.metrics["training_iteration"] for result in results] == [12, 12]
    for result in results:
        made = saves(tmp_path, result.metrics["trial_id"])
        assert set(made) == {4, 8, 12}, "at intervals, and at the end"
    assert results[0].metrics["height"] > 12.0, "it took over from the better one"


class Counter(Climber):
    def step(self) -> dict[str, Any]:
        found = super().step()
        return {**found, "done": False, "should_checkpoint": self.iteration + 1 == 3, "far": self.iteration + 1 >= 5}


class SaveAtThree(tune.Callback):
    """As Ray's guide does it: the result that a callback is given may ask for a checkpoint."""

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        result["should_checkpoint"] = result["training_iteration"] == 3


class Patient(Climber):
    """Waits after its third step until it has been told to save, as its peers would in a long step."""

    def step(self) -> dict[str, Any]:
        if self.iteration == 3:
            deadline = time.monotonic() + 60
            while not session.current().save_asked and time.monotonic() < deadline:
                time.sleep(0.01)
        return super().step()


@pytest.mark.parametrize("scheduler", [None, ASHAScheduler(max_t=12, grace_period=6)], ids=["fifo", "asha"])
def test_a_callback_asks_for_a_checkpoint(tmp_path: Path, scheduler: Any) -> None:
    """It comes with the next result: the one that the callback heard of is stored by then."""
    result = tune.Tuner(
        Patient,
        param_space={"rate": 1.0, "notes": str(tmp_path)},
        tune_config=tune.TuneConfig(metric="height", mode="max", scheduler=scheduler),
        run_config=tune.RunConfig(
            name="asked",
            storage_path=str(tmp_path),
            verbose=0,
            callbacks=[SaveAtThree()],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    ).fit()[0]
    assert result.metrics["training_iteration"] == 12
    assert saves(tmp_path, result.metrics["trial_id"]) == [4]
    assert [metrics["height"] for _, metrics in result.best_checkpoints] == [4.0]


@pytest.mark.parametrize("stop", [{"training_iteration": 5}, {"height": 5}, {"far": True}], ids=str)
@pytest.mark.parametrize(("at_end", "expected"), [(None, [3, 5]), (True, [3, 5]), (False, [3])])
def test_should_checkpoint_and_the_end_are_all_that_is_saved(
    tmp_path: Path, stop: Any, at_end: bool | None, expected: list[int]
) -> None:
    run = tune.RunConfig(
        name="count",
        storage_path=str(tmp_path),
        verbose=0,
        stop=stop,
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=at_end),
    )
    result = tune.Tuner(Counter, param_space={"rate": 1.0, "notes": str(tmp_path)}, run_config=run).fit()[0]
    assert result.metrics["training_iteration"] == 5
    assert [metrics["training_iteration"] for _, metrics in result.best_checkpoints] == expected
    assert saves(tmp_path, result.metrics["trial_id"]) == expected
