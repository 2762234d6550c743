"""What schedulers answer with, the base to extend, and what all that compare by a metric do with odd results."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from holdfast.tune import schedulers
from holdfast.tune.schedulers import (
    PB2,
    ASHAScheduler,
    AsyncHyperBandScheduler,
    Decision,
    Exploit,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    Request,
    ResourceChangingScheduler,
    Save,
    SetConfig,
    StopTrial,
    TrialScheduler,
    create_scheduler,
)
from support.tune.toy_experiment import Toy, Trial, view_of

MAKERS: dict[str, Callable[..., TrialScheduler]] = {
    "asha": ASHAScheduler,
    "hyperband": HyperBandScheduler,
    "bohb": HyperBandForBOHB,
    "median": lambda **k: MedianStoppingRule(time_attr="training_iteration", grace_period=1, **k),
    "pbt": lambda **k: PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_mutations={"lr": [1, 2]}, **k
    ),
    "pb2": lambda **k: PB2(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_bounds={"lr": [0, 1]}, **k
    ),
    "resources": lambda **k: ResourceChangingScheduler(ASHAScheduler(**k)),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., TrialScheduler]:
    return MAKERS[request.param]


def first_result(scheduler: TrialScheduler, result: dict[str, Any]) -> Decision:
    trial = Trial("a", {"lr": 1}, status="RUNNING", last_result=result)
    view = view_of(trial)
    scheduler.on_trial_add(view, trial)
    return scheduler.on_trial_result(view, trial, result)


def test_a_decision_is_its_action_and_carries_more() -> None:
    decision = Decision("STOP", "too slow", [Save("a")])
    assert decision == "STOP" == TrialScheduler.STOP == decision.action
    assert decision != TrialScheduler.CONTINUE
    assert (decision.reason, decision.requests) == ("too slow", (Save("a"),))
    again = pickle.loads(pickle.dumps(decision))
    assert (again.action, again.reason, again.requests) == (decision.action, decision.reason, decision.requests)
    assert repr(again) == repr(decision)


def test_what_users_return_becomes_a_decision() -> None:
    assert Decision.of(TrialScheduler.PAUSE) is TrialScheduler.PAUSE
    assert Decision.of("STOP") == TrialScheduler.STOP
    assert Decision.of(None) == Decision.of("stop") == "ERROR"
    assert "answered None" in Decision.of(None).reason
    with pytest.raises(ValueError, match="action='NOOP'"):
        Decision("NOOP")


def test_requests_can_be_journalled() -> None:
    exploit = Exploit("a", "b", 3, {"lr": 1}, {"lr": 2}, 4, 5)
    encoded = msgspec.json.encode([exploit, SetConfig("a", {}), StopTrial("b", "why"), Save("c")])
    assert [line["type"] for line in json.loads(encoded)] == ["Exploit", "SetConfig", "StopTrial", "Save"]
    known = list[SetConfig | Exploit | StopTrial | Save]
    assert msgspec.json.decode(encoded, type=known)[0] == exploit
    with pytest.raises(AttributeError):
        exploit.step = 9  # type: ignore[misc]


def test_fifo_starts_what_came_first_and_then_what_is_paused() -> None:
    trials = [Trial("done", status="TERMINATED"), Trial("paused", status="PAUSED"), Trial("a"), Trial("b")]
    view, fifo = view_of(*trials), FIFOScheduler()
    assert fifo.choose_trial_to_run(view) is trials[2]
    trials[2].status = trials[3].status = "RUNNING"
    assert fifo.choose_trial_to_run(view) is trials[1]
    trials[1].status = "RUNNING"
    assert fifo.choose_trial_to_run(view) is None
    assert fifo.on_trial_result(view, trials[2], {}) == FIFOScheduler.CONTINUE


def test_a_users_scheduler_overrides_only_what_it_needs() -> None:
    class StopAtThree(TrialScheduler):
        def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> Any:  # type: ignore[override]
            assert trial in tune_controller.get_live_trials()
            return TrialScheduler.STOP if result["training_iteration"] == 3 else TrialScheduler.CONTINUE

    scheduler = StopAtThree()
    assert scheduler.set_search_properties("loss", "min")
    toy = Toy(scheduler, [{}] * 4, lambda _, step: {"loss": step}).run()
    assert toy.ended == {f"t00{i}": 3 for i in range(4)}


def test_the_metric_comes_from_the_scheduler_or_from_the_experiment_but_not_from_both(make: Any) -> None:
    assert make(metric="loss", mode="min").set_search_properties(None, None)
    assert not make(metric="loss", mode="min").set_search_properties("loss", None)
    assert not make(metric="loss", mode="min").set_search_properties(None, "max")
    scheduler = make()
    assert scheduler.set_search_properties("loss", "min")
    assert (scheduler.metric, scheduler.mode) == ("loss", "min")
    assert make(mode="min").set_search_properties("loss", None)


def test_an_unnamed_metric_has_a_name(make: Any) -> None:
    scheduler = make()
    assert scheduler.set_search_properties(None, "max")
    assert scheduler.metric == "_metric"


def test_without_a_metric_there_is_an_error_at_the_first_trial(make: Any) -> None:
    scheduler = make()
    scheduler.set_search_properties(None, None)
    with pytest.raises(ValueError, match="metric=None and mode=None: pass both to TuneConfig"):
        scheduler.on_trial_add(view_of(Trial("a")), Trial("a"))
    with pytest.raises(ValueError, match=r"mode='best'\): must be"):
        make(mode="best")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "is not in the result"), ("0.5", "is '0.5', which is not a number"), (True, "is True"), ([1], r"is \[1\]")],
)
def test_a_missing_metric_is_the_error_of_the_trial(make: Any, value: Any, text: str) -> None:
    result = {"training_iteration": 1, "accuracy": 0.1, "zeta": 1, **({} if value is None else {"loss": value})}
    decision = first_result(make(metric="loss", mode="min"), result)
    assert decision == "ERROR"
    assert "'loss', the metric of" in decision.reason
    assert "of trial a (reported: accuracy" in decision.reason
    assert "zeta)" in decision.reason
    assert re.search(text, decision.reason)


def test_a_trial_with_a_missing_metric_does_not_stop_the_others(make: Any) -> None:
    def objective(config: Any, step: int) -> dict[str, float]:
        return {} if config["lr"] == 3 else {"loss": config["lr"] / step}

    toy = Toy(make(metric="loss", mode="min"), [{"lr": lr} for lr in (1, 3, 2, 1)], objective, last_step=3).run()
    assert list(toy.errors) == ["t001"]
    assert len(toy.ended) == 4
    assert sum(steps == 3 for steps in toy.ended.values()) >= 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), 10**400])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_any_number_is_taken_and_what_is_not_finite_is_the_worst(make: Any, mode: str, value: Any) -> None:
    bad = {"training_iteration": 1, "loss": value}
    assert first_result(make(metric="loss", mode=mode), bad) != "ERROR"
    if make is MAKERS["asha"]:
        scheduler = make(metric="loss", mode=mode)
        for name in "ab":
            trial = Trial(name)
            scheduler.on_trial_add(view_of(trial), trial)
            value_now = {"training_iteration": 1, "loss": 0.0 if name == "a" else value}
            decision = scheduler.on_trial_result(view_of(trial), trial, value_now)
        assert decision == "STOP"


@pytest.mark.parametrize("value", [1, 1.5, np.float32(0.5), np.array(2.0), np.int64(3)])
def test_numbers_of_other_libraries_are_numbers(make: Any, value: Any) -> None:
    assert first_result(make(metric="loss", mode="min"), {"training_iteration": 1, "loss": value}) != "ERROR"


def test_a_nested_metric_has_a_name_with_slashes() -> None:
    result = {"training_iteration": 1, "eval": {"loss": 0.5}}
    assert first_result(ASHAScheduler(metric="eval/loss", mode="min"), result) == "CONTINUE"
    assert first_result(ASHAScheduler(metric="eval/loss", mode="min"), {"training_iteration": 1}) == "ERROR"


def test_a_result_without_the_time_is_passed_over_and_says_so() -> None:
    decision = first_result(ASHAScheduler(time_attr="epoch", metric="loss", mode="min"), {"loss": 1.0})
    assert decision == "CONTINUE"
    assert "this result has no 'epoch'" in decision.reason


def test_population_based_training_requires_the_time_unless_told_otherwise() -> None:
    strict = PopulationBasedTraining(metric="loss", mode="min", hyperparam_mutations={"lr": [1]})
    decision = first_result(strict, {"loss": 1.0})
    assert decision == "ERROR"
    assert "'time_total_s', the time_attr of PopulationBasedTraining" in decision.reason
    loose = PopulationBasedTraining(metric="loss", mode="min", hyperparam_mutations={"lr": [1]}, require_attrs=False)
    assert first_result(loose, {"loss": 1.0}) == first_result(loose, {"time_total_s": 99}) == "CONTINUE"


def test_schedulers_by_name() -> None:
    assert type(create_scheduler("FIFO", max_t=5)) is FIFOScheduler
    asha = create_scheduler("async_hyperband", max_t=5, unknown=1)
    assert type(asha) is ASHAScheduler is AsyncHyperBandScheduler
    with pytest.raises(ValueError, match=r"scheduler='x'\): must be one of fifo, "):
        create_scheduler("x")


def test_every_scheduler_can_be_pickled_and_says_how_it_stands(make: Any) -> None:
    scheduler = make(metric="loss", mode="min")
    first_result(scheduler, {"training_iteration": 1, "loss": 1.0})
    assert scheduler.debug_string()
    assert pickle.loads(pickle.dumps(scheduler)).debug_string() == scheduler.debug_string()


def test_all_names_are_there() -> None:
    assert all(hasattr(schedulers, name) for name in schedulers.__all__)
    assert issubclass(Save, Request)
