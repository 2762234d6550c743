"""A scheduler that is restored from a file decides as the one that was saved."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.core.experiment.state import ExperimentLimits, ExperimentState
from holdfast.core.experiment.trial import PAUSED, RUNNING, TERMINATED, Trial
from holdfast.tune import schedulers as kinds
from holdfast.tune.schedulers import TrialScheduler

_RATES = {"rate": tune.uniform(0, 1), "size": [1, 2, 4]}
MADE: dict[str, Callable[[], TrialScheduler]] = {
    "fifo": lambda: kinds.FIFOScheduler(),
    "asha": lambda: kinds.ASHAScheduler(metric="loss", mode="min", max_t=20, brackets=2, reduction_factor=2),
    "hyperband": lambda: kinds.HyperBandScheduler(metric="loss", mode="min", max_t=9),
    "bohb": lambda: kinds.HyperBandForBOHB(metric="loss", mode="min", max_t=9),
    "median": lambda: kinds.MedianStoppingRule(
        time_attr="training_iteration", metric="loss", mode="min", grace_period=1, min_samples_required=2
    ),
    "pbt": lambda: kinds.PopulationBasedTraining(
        metric="loss",
        mode="min",
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations=_RATES,
        custom_explore_fn=lambda config: config,
        seed=3,
    ),
    "pb2": lambda: kinds.PB2(
        metric="loss",
        mode="min",
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_bounds={"rate": [0, 1]},
        seed=3,
    ),
    "resources": lambda: kinds.ResourceChangingScheduler(
        kinds.ASHAScheduler(metric="loss", mode="min", max_t=20, grace_period=2)
    ),
}


class Experiment:
    """Ten trials that report in turn; some are stopped or paused as the scheduler says."""

    def __init__(self) -> None:
        self.state = ExperimentState(ExperimentLimits(10, 0, False), {"CPU": 10.0})
        self.chance = random.Random(1)
        for number in range(10):
            config = {"rate": self.chance.random(), "size": 2}
            where = f"t{number}", config, config, f"trial {number}", f"trial-{number}"
            trial = Trial(*where, [{"CPU": 1.0}])
            self.state.trials[trial.trial_id] = self.state.live[trial.trial_id] = trial

    def add_to(self, scheduler: TrialScheduler) -> None:
        for trial in self.state.live.values():
            scheduler.on_trial_add(self.state, trial)
            trial.status = RUNNING

    def report(self, iteration: int, *schedulers: TrialScheduler) -> list[list[str]]:
        """What each scheduler says of each trial."""
        chance = random.Random(iteration)
        said: list[list[str]] = [[] for _ in schedulers]
        for trial in self.state.live.values():
            loss = chance.random() + trial.config["rate"]
            trial.last_result = {"loss": loss, "training_iteration": iteration, "config": trial.config}
            trial.checkpoint_number = iteration
            for scheduler, lines in zip(schedulers, said, strict=True):
                decision = scheduler.on_trial_result(self.state, trial, trial.last_result)
                lines.append(f"{trial.trial_id} {decision} {getattr(decision, 'requests', ())}")
        return said

    def follow(self, said: list[str]) -> None:
        for line in said:
            trial_id, action, *_ = line.split()
            trial = self.state.trials[trial_id]
            if action == "STOP":
                trial.status = TERMINATED
                del self.state.live[trial_id]
            elif action == "PAUSE":
                trial.status = PAUSED


@pytest.mark.parametrize("name", MADE)
def test_a_restored_scheduler_decides_as_the_saved_one(name: str, tmp_path: Path) -> None:
    experiment, one = Experiment(), MADE[name]()
    experiment.add_to(one)
    for iteration in (1, 2):
        experiment.follow(*experiment.report(iteration, one))
    one.save(str(tmp_path / "state"))
    other = MADE[name]()
    other.restore(str(tmp_path / "state"))
    for iteration in (3, 4, 5, 6):
        said, again = experiment.report(iteration, one, other)
        assert again == said
        experiment.follow(said)
    assert other.debug_string() == one.debug_string()


def test_the_file_is_plain_data_and_makes_nothing_else(tmp_path: Path) -> None:
    experiment, scheduler = Experiment(), MADE["asha"]()
    experiment.add_to(scheduler)
    experiment.report(1, scheduler)
    file = tmp_path / "state"
    scheduler.save(str(file))
    state = json.loads(file.read_text())
    assert "_brackets" in state
    file.write_text(file.read_text().replace("async_hyperband.Bracket", "os.Popen"))
    with pytest.raises(ValueError, match="not a class of this scheduler"):
        MADE["asha"]().restore(str(file))


class Own(kinds.FIFOScheduler):
    def __init__(self) -> None:
        self.seen: Any = {("t", 1): {2.0, float("inf")}}
        self.callback: Any = None


def test_a_scheduler_of_ones_own(tmp_path: Path) -> None:
    own, other = Own(), Own()
    own.seen["more"] = [(1, 2), None]
    own.save(str(tmp_path / "state"))
    other.restore(str(tmp_path / "state"))
    assert other.seen == own.seen
    own.callback = len
    with pytest.raises(TypeError, match=r"Own\.callback holds <built-in function len>"):
        own.save(str(tmp_path / "state"))


def test_a_state_of_another_scheduler_is_refused(tmp_path: Path) -> None:
    experiment, scheduler = Experiment(), MADE["resources"]()
    experiment.add_to(scheduler)
    scheduler.save(str(tmp_path / "state"))
    with pytest.raises(ValueError, match="saved by another scheduler than this AsyncHyperBandScheduler"):
        MADE["asha"]().restore(str(tmp_path / "state"))
