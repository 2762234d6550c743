"""What schedulers and stoppers say of their next decision holds: up to there every result lets a trial continue."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast.tune import Stopper
from holdfast.tune.foresight import next_decision
from holdfast.tune.schedulers import (
    ASHAScheduler,
    Decision,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)
from holdfast.tune.stopper import CombinedStopper, MaximumIterationStopper, NoopStopper, ThresholdStopper
from support.tune.toy_experiment import Toy, Trial, View

OBJECTIVE = {"metric": "loss", "mode": "min"}
SCHEDULERS: dict[str, Callable[..., TrialScheduler]] = {
    "asha": lambda: ASHAScheduler(max_t=30, grace_period=1.5, reduction_factor=3, brackets=2, seed=1, **OBJECTIVE),
    "asha without an end": lambda: ASHAScheduler(max_t=30, stop_last_trials=False, **OBJECTIVE),
    "asha by another time": lambda: ASHAScheduler(time_attr="hours", max_t=30, **OBJECTIVE),
    "hyperband": lambda: HyperBandScheduler(max_t=27, **OBJECTIVE),
    "median": lambda: MedianStoppingRule(time_attr="training_iteration", grace_period=3, **OBJECTIVE),
    **{
        f"pbt{' together' * together}": lambda together=together: PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=4,
            burn_in_period=6,
            hyperparam_mutations={"x": [0.1, 0.5, 0.9]},
            synch=together,
            seed=1,
            **OBJECTIVE,
        )
        for together in (False, True)
    },
}


class Foreseen(Toy):
    """Remembers for each trial until when nothing was to be decided."""

    def _call(self, method: str, trial: Trial | None = None, result: Mapping[str, Any] | None = None) -> Any:
        answer = super()._call(method, trial, result)
        if method == "on_trial_result" and trial is not None and result is not None:
            step = result["training_iteration"]
            until = self.until.get(trial.trial_id, 0.0)
            assert answer == "CONTINUE" or step >= until, f"{answer} at {step}, and not before {until} was said"
            goes_on = answer == "CONTINUE" and not answer.requests
            said = next_decision(self.scheduler, "on_trial_result", trial.trial_id, step)
            self.until[trial.trial_id] = said if goes_on else 0.0
            self.far = max(self.far, said - step if goes_on else 0)
        return answer

    until: dict[str, float]
    far = 0.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_decides_nothing_before_it_said(name: str, seed: int) -> None:
    choice = random.Random(seed)
    toy = Foreseen(
        SCHEDULERS[name](),
        [{"x": choice.random()} for _ in range(6)],
        lambda config, step: {"loss": config["x"] / step, "hours": step / 2},
        last_step=40,
        seed=seed,
    )
    toy.until = {}
    toy.run()
    assert toy.far > 1 or name in ("asha by another time", "hyperband", "median")


def test_rungs_and_the_end_are_what_asha_waits_for() -> None:
    scheduler = ASHAScheduler(max_t=50, grace_period=2, reduction_factor=4, metric="loss", mode="min")
    trial = Trial("t")
    view = View({"t": trial})
    scheduler.on_trial_add(view, trial)
    said = []
    for step in (1, 2, 3, 8, 9, 32, 40):
        assert scheduler.on_trial_result(view, trial, {"training_iteration": step, "loss": 1.0}) == "CONTINUE"
        said.append(next_decision(scheduler, "on_trial_result", "t", step))
    assert said == [2, 8, 8, 32, 32, 50, 50]


def test_stoppers_by_iterations_say_when_and_others_are_asked_each_time() -> None:
    def said(stopper: Stopper) -> float:
        return next_decision(stopper, "__call__", "t", 3)

    assert said(NoopStopper()) == math.inf
    assert said(MaximumIterationStopper(10)) == 10
    assert said(ThresholdStopper({"training_iteration": 7})) == 7
    assert said(ThresholdStopper({"training_iteration": 7, "accuracy": 0.9})) == 4
    assert said(CombinedStopper(MaximumIterationStopper(10), ThresholdStopper({"training_iteration": 7}))) == 7
    assert said(CombinedStopper()) == math.inf


def test_who_decides_otherwise_than_its_base_is_asked_each_time() -> None:
    class Mine(ASHAScheduler):
        def on_trial_result(self, *args: Any) -> Decision:
            return self.STOP

    class Own(FIFOScheduler):
        def on_trial_result(self, *args: Any) -> Decision:
            return self.STOP

        def next_decision(self, trial_id: str, iteration: int) -> float:
            return 20

    class Longer(MaximumIterationStopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return True

    assert next_decision(Mine(max_t=50, metric="loss", mode="min"), "on_trial_result", "t", 5) == 6
    assert next_decision(Own(), "on_trial_result", "t", 5) == 20
    assert next_decision(CombinedStopper(Longer(10)), "__call__", "t", 5) == 6
