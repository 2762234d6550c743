"""Population-based training: who takes over from whom, what is explored, and what is logged, computed by hand."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune import search_space as tune
from holdfast.tune.schedulers import (
    Decision,
    Exploit,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    Save,
    SetConfig,
    policy_rows,
)
from holdfast.tune.schedulers.explore import Explorer, filled, summary
from support.tune.toy_experiment import Toy, Trial, View, assert_replays, view_of


def pbt(**options: Any) -> PopulationBasedTraining:
    given = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 2,
        "hyperparam_mutations": {"lr": tune.uniform(0, 1)},
        "resample_probability": 0.0,
        "perturbation_factors": (0.5,),
    }
    return PopulationBasedTraining(**{**given, **options})


class Population:
    def __init__(self, scheduler: PopulationBasedTraining, count: int, **config: Any) -> None:
        self.scheduler = scheduler
        self.view = View({})
        for number in range(count):
            trial = Trial(f"t{number}", {"lr": float(number), **config}, status="RUNNING")
            self.view.trials[trial.trial_id] = trial
            assert not scheduler.on_trial_add(self.view, trial)

    def report(self, name: str, step: int, score: float) -> Decision:
        trial = self.view.trials[name]
        trial.last_result = {"training_iteration": step, "score": score}
        trial.checkpoint = step
        return self.scheduler.on_trial_result(self.view, trial, trial.last_result)


def test_exploitation_by_hand() -> None:
    """Of four trials one is in each quantile."""
    population = Population(pbt(), 4)
    assert population.report("t0", 1, 0.0) == "CONTINUE"  # before the interval is over nothing is ranked
    assert population.report("t3", 2, 3.0).requests == ()  # alone
    assert population.report("t1", 2, 1.0).requests[0].donor_id == "t3"  # one of two in each quantile
    decision = population.report("t2", 2, 4.0)  # the best of three
    assert (decision, decision.reason, decision.requests) == ("CONTINUE", "among the best", (Save("t2"),))
    decision = population.report("t0", 2, 0.5)
    exploit = Exploit("t0", "t2", 2, {"lr": 1.0}, {"lr": 2.0}, 2, 2, {"lr": "* 0.5"})
    assert (decision, decision.requests) == ("CONTINUE", (exploit,))
    assert decision.reason == "copies t2 with lr: 2.0 (* 0.5) 1.0"
    assert population.report("t3", 4, 3.0).requests == ()  # in the middle
    assert [e.trial_id for e in population.scheduler.perturbations] == ["t1", "t0"]
    assert population.scheduler.debug_string() == "PopulationBasedTraining: 2 perturbations"


def test_less_is_better_with_min() -> None:
    population = Population(pbt(mode="min"), 2)
    population.report("t0", 2, 1.0)
    assert population.report("t1", 2, 2.0).requests[0].donor_id == "t0"


def test_a_trial_that_took_over_has_the_time_of_the_one_it_took_over_from() -> None:
    population = Population(pbt(), 2)
    population.report("t1", 5, 9.0)
    population.report("t0", 2, 0.0)
    assert population.report("t0", 6, 0.0).requests == ()  # its next interval is over at 7
    assert population.report("t0", 7, 0.0).requests != ()


@pytest.mark.parametrize(
    ("count", "fraction", "size"),
    [(8, 0.25, 2), (5, 0.25, 2), (3, 0.5, 1), (2, 0.1, 1), (4, 0.5, 2), (4, 0, 0), (1, 0.5, 0)],
)
def test_quantiles(count: int, fraction: float, size: int) -> None:
    population = Population(pbt(quantile_fraction=fraction), count)
    for number in range(count):
        population.report(f"t{number}", 2, float(number))
    lower, upper = population.scheduler._quantiles()
    names = [f"t{number}" for number in range(count)]
    assert (lower, upper) == (names[:size], names[count - size :])


def test_diverged_trials_take_over_and_are_never_taken_over_from() -> None:
    population = Population(pbt(quantile_fraction=0.5), 4)
    assert population.report("t0", 2, math.nan).requests == ()
    assert population.report("t1", 2, math.inf).requests == ()  # nobody good is there
    population.report("t2", 2, -5.0)
    assert population.report("t0", 4, math.inf).requests[0].donor_id == "t2"
    population.report("t3", 2, math.nan)
    assert population.scheduler._quantiles()[1] == ["t2"]


def test_the_burn_in_period() -> None:
    population = Population(pbt(burn_in_period=5), 2)
    assert population.report("t0", 4, 0.0) == population.report("t1", 4, 1.0) == "CONTINUE"
    assert all(standing.score is None for standing in population.scheduler._standings.values())
    population.report("t1", 5, 1.0)
    assert population.report("t0", 5, 0.0).requests != ()


def test_without_a_checkpoint_nobody_takes_over() -> None:
    population = Population(pbt(), 2)
    population.report("t1", 2, 1.0)
    population.view.trials["t1"].checkpoint = None
    decision = population.report("t0", 2, 0.0)
    assert (decision, decision.requests) == ("CONTINUE", ())
    assert "has no checkpoint yet" in decision.reason


@pytest.mark.parametrize("method", ["on_trial_complete", "on_trial_error", "on_trial_remove"])
def test_who_has_ended_is_out_of_the_population(method: str) -> None:
    population = Population(pbt(), 3)
    population.report("t1", 2, 5.0)
    population.report("t2", 2, 1.0)
    result = [{}] if method == "on_trial_complete" else []
    getattr(population.scheduler, method)(population.view, population.view.trials["t1"], *result)
    assert population.report("t0", 2, 0.0).requests[0].donor_id == "t2"


def test_trials_that_wait_get_their_turn_and_the_least_trained_first() -> None:
    population = Population(pbt(), 3)
    trials = population.view.trials
    trials["t2"].status = "PENDING"
    decision = population.report("t0", 2, 0.0)
    assert decision == "PAUSE"
    trials["t0"].status = "PAUSED"
    assert population.scheduler.choose_trial_to_run(population.view) is trials["t2"]
    trials["t2"].status = "RUNNING"
    assert population.report("t1", 2, 1.0) == "PAUSE"
    trials["t1"].status = "PAUSED"
    population.report("t2", 4, 0.5)
    trials["t2"].status = "PAUSED"
    assert population.scheduler.choose_trial_to_run(population.view) is trials["t0"]


def test_with_synch_all_wait_for_each_other() -> None:
    population = Population(pbt(synch=True), 4)
    trials, scheduler = population.view.trials, population.scheduler
    assert population.report("t0", 1, 0.0) == "CONTINUE"
    for number, step in ((0, 2), (1, 3), (2, 2), (3, 2)):
        assert population.report(f"t{number}", step, float(number)) == "PAUSE"
        trials[f"t{number}"].status = "PAUSED"
    assert scheduler.choose_trial_to_run(population.view) is None
    requests = scheduler.on_idle(population.view)
    assert requests == [Exploit("t0", "t3", 2, {"lr": 1.5}, {"lr": 3.0}, 2, 2, {"lr": "* 0.5"})]
    assert scheduler.choose_trial_to_run(population.view) is trials["t0"]
    assert population.report("t1", 3, 1.0) == "CONTINUE"  # the next point is 4
    assert population.report("t1", 4, 1.0) == "PAUSE"


def test_with_synch_a_slow_one_is_waited_for() -> None:
    population = Population(pbt(synch=True), 3)
    population.report("t0", 2, 0.0)
    population.report("t1", 2, 1.0)
    assert not population.scheduler.on_idle(population.view)
    population.view.trials["t2"].status = "PENDING"
    assert population.scheduler.choose_trial_to_run(population.view) is population.view.trials["t2"]


def test_with_synch_nobody_waits_for_a_point_that_all_have_passed() -> None:
    population = Population(pbt(synch=True), 2)
    for name in population.view.trials:
        population.report(name, 7, 1.0)  # the interval is 2
        population.view.trials[name].status = "PAUSED"
    population.scheduler.on_idle(population.view)
    assert population.scheduler.choose_trial_to_run(population.view) is not None
    assert population.report("t0", 8, 1.0) == "PAUSE"


def test_a_first_configuration_is_completed_from_the_mutations() -> None:
    mutations = {"lr": tune.uniform(2, 3), "net": {"depth": [4], "width": lambda: 8}, "there": [1]}
    scheduler = pbt(hyperparam_mutations=mutations)
    trial = Trial("a", {"there": 7, "net": {"width": 9}, "other": "x"})
    (request,) = scheduler.on_trial_add(view_of(trial), trial) or ()
    assert isinstance(request, SetConfig)
    assert 2 <= request.config.pop("lr") <= 3
    assert request.config == {"there": 7, "net": {"depth": 4, "width": 9}, "other": "x"}
    assert trial.config == {"there": 7, "net": {"width": 9}, "other": "x"}
    assert list(filled({}, {"a": {"b": [1]}}, random.Random(0))) == ["a"]


class Fixed:
    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


@pytest.mark.parametrize(
    ("values", "old", "numbers", "new", "operation"),
    [
        ([1, 2, 3], 2, [0.9, 0.4], 1, "shift left"),
        ([1, 2, 3], 2, [0.9, 0.6], 3, "shift right"),
        ([1, 2, 3], 3, [0.9, 0.6], 3, "shift right (noop)"),
        ((1, 2, 3), 2, [0.1, 0.99], 3, "resample"),
        ([1, 2, 3], 7, [0.9, 0.0], 1, "resample"),
        (tune.uniform(0, 10), 4.0, [0.9, 0.0], 4.8, "* 1.2"),
        (tune.uniform(0, 10), 4.0, [0.9, 0.9], 3.2, "* 0.8"),
        (tune.uniform(0, 10), 4.0, [0.2, 0.5], 5.0, "resample"),
        (tune.randint(0, 100), 7, [0.9, 0.0], 8, "* 1.2"),
        (lambda: 9, 4, [0.1], 9, "resample"),
        (tune.choice([1, 10]), 10, [0.9, 0.9], 8, "* 0.8"),
        (tune.choice(["a", "b"]), "a", [0.9, 0.9], "b", "resample"),
        (tune.choice([True, False]), True, [0.9, 0.9], True, "* 0.8"),
        (tune.choice([True, False]), True, [0.1, 0.9], False, "resample"),
    ],
)
def test_exploration_by_hand(values: Any, old: Any, numbers: list[float], new: Any, operation: str) -> None:
    explorer = Explorer({"p": values}, 0.25, (1.2, 0.8), Fixed(*numbers))
    config, operations = explorer.explore({"p": old, "other": [1]})
    assert config == {"p": pytest.approx(new) if isinstance(new, float) else new, "other": [1]}
    assert type(config["p"]) is type(new)
    assert operations == {"p": operation}


def test_nested_exploration_and_its_summary() -> None:
    explorer = Explorer({"a": {"b": {"c": tune.uniform(0, 1)}}, "d": [1, 2]}, 0.0, (0.5,), random.Random(1))
    old = {"a": {"b": {"c": 0.5, "fixed": 1}}, "d": 1}
    new, operations = explorer.explore(old)
    assert new["a"] == {"b": {"c": 0.25, "fixed": 1}}
    assert old == {"a": {"b": {"c": 0.5, "fixed": 1}}, "d": 1}
    assert summary(old, new, operations) == f"a/b/c: 0.5 (* 0.5) 0.25, d: 1 ({operations['d']}) {new['d']}"


def test_a_function_of_the_user_has_the_last_word() -> None:
    scheduler = pbt(custom_explore_fn=lambda config: {**config, "extra": config["lr"] + 1})
    population = Population(scheduler, 2)
    population.report("t1", 2, 1.0)
    assert population.report("t0", 2, 0.0).requests[0].config == {"lr": 0.5, "extra": 1.5}
    population = Population(pbt(hyperparam_mutations=None, custom_explore_fn=lambda _: None), 2)
    population.report("t1", 2, 1.0)
    with pytest.raises(TypeError, match="custom_explore_fn returned None"):
        population.report("t0", 2, 0.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hyperparam_mutations": None}, ValueError, "pass hyperparam_mutations, custom_explore_fn"),
        ({"hyperparam_mutations": {"a": 3}}, TypeError, r"hyperparam_mutations\['a'\]=3: pass a list"),
        ({"hyperparam_mutations": {"a": {"b": []}}}, ValueError, r"hyperparam_mutations\['a'\]\['b'\]=\[\]"),
        ({"hyperparam_mutations": {"a": tune.sample_from(lambda: 1)}}, ValueError, "sample_from is not possible"),
        ({"quantile_fraction": 0.6}, ValueError, r"quantile_fraction=0.6\): must not be above 0.5"),
        ({"quantile_fraction": -0.1}, ValueError, "quantile_fraction=-0.1"),
        ({"resample_probability": 1.1}, ValueError, "resample_probability=1.1"),
        ({"perturbation_interval": 0}, ValueError, "perturbation_interval=0"),
        ({"burn_in_period": -1}, ValueError, "burn_in_period=-1"),
        ({"perturbation_factors": ()}, ValueError, "perturbation_factors=()"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pbt(**options)


def test_nothing_is_kept_without_log_config() -> None:
    population = Population(pbt(log_config=False), 2)
    population.report("t1", 2, 1.0)
    assert population.report("t0", 2, 0.0).requests != ()
    assert population.scheduler.perturbations == []


def test_the_policy_of_a_trial_follows_whom_it_took_over_from() -> None:
    def exploit(trial: str, donor: str, step: int, old: int, new: int) -> Exploit:
        return Exploit(trial, donor, step, {"lr": new}, {"lr": old}, step, step)

    history = [exploit("a", "b", 2, 10, 11), exploit("c", "a", 4, 11, 12), exploit("a", "b", 6, 13, 14)]
    assert policy_rows(history, "c") == [
        ["a", "b", 2, 2, {"lr": 10}, {"lr": 11}],
        ["c", "a", 4, 4, {"lr": 11}, {"lr": 12}],
    ]
    assert policy_rows(history, "a") == [["a", "b", 6, 6, {"lr": 13}, {"lr": 14}]]
    assert policy_rows(history, "b") == []


def write_policy(path: Path, rows: list[list[Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_replay_changes_the_configuration_on_schedule(tmp_path: Path) -> None:
    rows = [
        ["x", "y", 1, 1, {"lr": 0}, {"lr": 1}],  # overwritten: the next line is not about x
        ["a", "b", 2, 2, {"lr": 10}, {"lr": 11}],
        ["c", "a", 5, 4, {"lr": 11}, {"lr": 12}],
    ]
    replay = PopulationBasedTrainingReplay(str(write_policy(tmp_path / "pbt_policy_c.txt", rows)))
    trial = Trial("r", {"lr": 99}, status="RUNNING", checkpoint=1)
    view = view_of(trial)
    assert replay.on_trial_add(view, trial) == (SetConfig("r", {"lr": 10}),)
    assert replay.on_trial_add(view, trial) == ()  # resumed
    assert replay.on_trial_result(view, trial, {"training_iteration": 1}) == "CONTINUE"
    decision = replay.on_trial_result(view, trial, {"training_iteration": 2})
    assert decision == "CONTINUE"
    assert decision.requests == (Save("r"), Exploit("r", "r", None, {"lr": 11}, {"lr": 99}, 2, 2))
    assert replay.on_trial_result(view, trial, {}).requests == ()
    assert replay.on_trial_result(view, trial, {"training_iteration": 9}).requests[1].config == {"lr": 12}
    assert replay.on_trial_result(view, trial, {"training_iteration": 10}).requests == ()
    with pytest.raises(ValueError, match="set num_samples=1"):
        replay.on_trial_add(view, Trial("second"))


def test_replay_of_steps_that_were_skipped_ends_at_the_last_one(tmp_path: Path) -> None:
    rows = [["a", "b", 2, 2, {"lr": 10}, {"lr": 11}], ["a", "a", 5, 4, {"lr": 11}, {"lr": 12}]]
    replay = PopulationBasedTrainingReplay(write_policy(tmp_path / "p.txt", rows))
    trial = Trial("r")
    replay.on_trial_add(view_of(trial), trial)
    assert replay.on_trial_result(view_of(trial), trial, {"training_iteration": 7}).requests[1].config == {"lr": 12}


@pytest.mark.parametrize("text", ["not json\n", "[1, 2]\n", '["a", "b", 1, null, {}, {}]\n'])
def test_a_policy_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.txt").write_text(text)
    with pytest.raises(ValueError, match=r"p.txt is not a policy of population-based training"):
        PopulationBasedTrainingReplay(tmp_path / "p.txt")
    with pytest.raises(ValueError, match=r"missing.txt'\): .*No such file"):
        PopulationBasedTrainingReplay(str(tmp_path / "missing.txt"))


MUTATIONS = {"lr": tune.loguniform(1e-3, 1), "net": {"depth": [1, 2, 3]}, "n": tune.randint(1, 9)}


@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(1, 9),
    slots=st.integers(1, 4),
    synch=st.booleans(),
    seed=st.integers(0, 99),
    fraction=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_any_experiment_ends_and_replays(count: int, slots: int, synch: bool, seed: int, fraction: float) -> None:
    def make() -> PopulationBasedTraining:
        return pbt(
            hyperparam_mutations=MUTATIONS,
            resample_probability=0.25,
            perturbation_factors=(1.2, 0.8),
            quantile_fraction=fraction,
            synch=synch,
            seed=seed,
        )

    def objective(config: Any, step: int) -> dict[str, float]:
        return {"score": config["lr"] * step if config["lr"] < 0.9 else math.nan}

    def run() -> Toy:
        fails = {"t001": 3} if seed % 3 == 0 else {}
        return Toy(make(), [{}] * count, objective, slots=slots, last_step=9, seed=seed, fails=fails).run()

    toy = run()
    assert len(toy.ended) == count
    assert all(steps == 9 for name, steps in toy.ended.items() if toy.view.trials[name].status == "TERMINATED")
    assert bool(toy.exploits) <= (fraction > 0 and count > 1)
    assert toy.exploits == toy.scheduler.perturbations  # type: ignore[attr-defined]
    assert_replays(toy, make)
    assert run().answers == toy.answers


def test_what_users_functions_draw_by_themselves_does_not_change_what_follows() -> None:
    """On restore such a function may answer differently; then configurations come from the journal, through views."""
    numbers = iter(range(1, 1000))

    def make() -> PopulationBasedTraining:
        mutations = {"lr": lambda: next(numbers) / 1000}
        return pbt(hyperparam_mutations=mutations, resample_probability=0.5, perturbation_factors=(1.2, 0.8))

    toy = Toy(make(), [{}] * 4, lambda c, step: {"score": c["lr"] * step}, slots=2, last_step=9).run()
    assert len(toy.exploits) > 2
    fresh = make()
    for call, answer in zip(toy.calls, toy.answers, strict=True):
        again = call.make(fresh)
        if call.method == "on_trial_result":
            assert again[0] == answer[0]
            assert [(r.trial_id, type(r)) for r in again[2]] == [(r.trial_id, type(r)) for r in answer[2]]
    assert fresh._standings == toy.scheduler._standings  # type: ignore[attr-defined]
    assert fresh._source.getstate() == toy.scheduler._source.getstate()


def test_a_population_larger_than_the_slots_advances_evenly() -> None:
    scheduler = pbt(perturbation_interval=1, quantile_fraction=0.25)
    toy = Toy(scheduler, [{"lr": 1.0}] * 6, lambda c, step: {"score": c["lr"] + step}, slots=2, last_step=8)
    spread = []
    original = toy._step

    def watched(trial: Trial) -> None:
        original(trial)
        live = [t.checkpoint or 0 for t in toy.view.get_live_trials()]
        if len(toy.view.trials) == 6 and not toy.ended:
            spread.append(max(live) - min(live))

    toy._step = watched  # type: ignore[method-assign]
    toy.run()
    assert spread
    assert max(spread[10:]) <= 3
