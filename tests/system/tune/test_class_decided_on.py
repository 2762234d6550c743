"""Class trainables under schedulers: what a decision leaves or takes up again is saved, and nothing in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler


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
    assert saves(tmp_path, results[0].metrics["trial_id"]) == [1, 3, 12]  # the first, the rungs


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
        assert set(made) <= {1, 4, 5, 8, 9, 12}, "at intervals, at the end, and with the first of each start"
        assert {4, 8, 12} <= set(made)
    assert results[0].metrics["height"] > 12.0, "it took over from the better one"
