"""HyperBand's brackets against the table of its paper, and its pauses and halvings against cases made by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune.schedulers import Decision, HyperBandForBOHB, HyperBandScheduler, StopTrial
from holdfast.tune.schedulers.halving import HalvingBracket, largest_bracket
from support.tune.toy_experiment import Toy, Trial, View, assert_replays, view_of


def hyperband(kind: type[HyperBandScheduler] = HyperBandScheduler, **options: Any) -> HyperBandScheduler:
    return kind(**{"metric": "score", "mode": "max", **options})


class Population:
    """Trials that take their status from what is decided."""

    def __init__(self, scheduler: HyperBandScheduler, count: int) -> None:
        self.scheduler = scheduler
        self.trials = {f"t{number}": Trial(f"t{number}") for number in range(count)}
        for number, trial in enumerate(self.trials.values()):
            scheduler.on_trial_add(view_of(*list(self.trials.values())[: number + 1]), trial)

    @property
    def view(self) -> View:
        return view_of(*self.trials.values())

    def chosen(self) -> list[str]:
        """All that can be started now, in order."""
        names = []
        while (trial := self.scheduler.choose_trial_to_run(self.view)) is not None:
            self.trials[trial.trial_id].status = "RUNNING"
            names.append(trial.trial_id)
        return names

    def report(self, name: str, step: int, score: float) -> Decision:
        trial = self.trials[name]
        result = {"training_iteration": step, "score": score}
        decision = self.scheduler.on_trial_result(self.view, trial, result)
        trial.status = {"PAUSE": "PAUSED", "STOP": "TERMINATED"}.get(decision, trial.status)
        self.carry_out(decision.requests)
        return decision

    def carry_out(self, requests: Any) -> None:
        for request in requests:
            assert isinstance(request, StopTrial)
            assert self.trials[request.trial_id].status == "PAUSED"
            self.trials[request.trial_id].status = "TERMINATED"


@pytest.mark.parametrize(
    ("s", "sizes", "milestones"),
    [
        (4, [81, 27, 9, 3, 1], [1, 3, 9, 27, 81]),
        (3, [34, 11, 3, 1], [3, 9, 27, 81]),
        (2, [15, 5, 1], [9, 27, 81]),
        (1, [8, 2], [27, 81]),
        (0, [5], [81]),
    ],
)
def test_the_brackets_of_the_paper(s: int, sizes: list[int], milestones: list[int]) -> None:
    """The table for R = 81 and eta = 3."""
    assert largest_bracket(81, 3) == 4
    bracket = HalvingBracket(s, 4, 81, 3)
    assert (bracket.sizes, bracket.milestones) == (sizes, milestones)


@pytest.mark.parametrize(
    ("max_t", "eta", "s_max"), [(1, 3, 0), (2, 3, 0), (3, 3, 1), (100, 3, 4), (1000, 10, 3), (16, 2, 4)]
)
def test_the_number_of_brackets(max_t: int, eta: int, s_max: int) -> None:
    assert largest_bracket(max_t, eta) == s_max


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(2, 10) | st.floats(1.5, 10))
def test_every_bracket_shrinks_while_it_trains_longer_and_ends_at_max_t(max_t: int, eta: float) -> None:
    s_max = largest_bracket(max_t, eta)
    for s in range(s_max + 1):
        bracket = HalvingBracket(s, s_max, max_t, eta)
        assert len(bracket.sizes) == len(bracket.milestones) == s + 1
        assert bracket.sizes == sorted(bracket.sizes, reverse=True)
        assert bracket.milestones == sorted(bracket.milestones)
        assert bracket.milestones[-1] == max_t
        assert bracket.milestones[0] >= 1
        assert bracket.sizes[-1] >= 1


def test_trials_fill_the_smallest_bracket_first_and_the_largest_first_for_bohb() -> None:
    order = [len(b.trials) for b in Population(hyperband(max_t=9), 20).scheduler._brackets]
    assert order == [3, 5, 9, 3]  # of the rounds 3, 5, 9 and again
    order = [len(b.trials) for b in Population(hyperband(HyperBandForBOHB, max_t=9), 20).scheduler._brackets]
    assert order == [9, 5, 3, 3]


def test_earlier_rounds_come_first_and_within_one_the_bracket_that_is_behind() -> None:
    population = Population(
        hyperband(max_t=9), 20
    )  # t0 to t2, t3 to t7 and t8 to t16 are one round, t17 to t19 the next
    names = population.chosen()
    assert names == [f"t{number}" for number in range(20)]
    for name in ("t0", "t3", "t17"):
        population.trials[name].status = "PENDING"
    population.report("t1", 3, 1.0)
    assert population.chosen() == ["t3", "t0", "t17"]


def test_a_bracket_by_hand() -> None:
    """max_t 4, eta 2: brackets of 3 at 4, of 3 at 2 and 4, and of 4 at 1, 2 and 4. The last one, for BOHB, is first."""
    population = Population(hyperband(HyperBandForBOHB, max_t=4, reduction_factor=2), 4)
    assert population.chosen() == ["t0", "t1", "t2", "t3"]
    for name, score in (("t0", 1.0), ("t1", 4.0), ("t2", math.nan)):
        pause = population.report(name, 1, score)
        assert (pause, pause.reason) == ("PAUSE", "waits for the others of its bracket at 1")
    assert population.chosen() == []
    decision = population.report("t3", 1, 2.0)  # of 4 the best 2 continue
    assert decision == "CONTINUE"
    assert decision.requests == tuple(StopTrial(name, "not among the best 2 at 1") for name in ("t0", "t2"))
    assert population.chosen() == ["t1"]
    assert population.report("t3", 2, 2.0) == "PAUSE"
    decision = population.report("t1", 2, 1.0)
    assert (decision, decision.reason) == ("STOP", "not among the best 1 at 2")
    assert population.chosen() == ["t3"]
    assert population.report("t3", 3, 2.0) == "CONTINUE"
    decision = population.report("t3", 4, 2.0)
    assert (decision, decision.reason, decision.requests) == ("STOP", "reached max_t=4", ())


def test_a_bracket_that_is_not_full_waits_for_more_until_nothing_else_can_run() -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=4, reduction_factor=2), 3)
    assert len(population.chosen()) == 3
    for name in population.trials:
        assert population.report(name, 1, float(name[1])) == "PAUSE"
    assert population.chosen() == []
    requests = population.scheduler.on_idle(population.view)
    assert requests == [StopTrial("t0", "not among the best 2 at 1")]
    population.carry_out(requests)
    assert population.chosen() == ["t1", "t2"]
    late = Trial("late")
    population.scheduler.on_trial_add(view_of(late), late)
    assert len(population.scheduler._brackets) == 2  # it is too late for the first


def test_nothing_to_do_when_idle() -> None:
    assert not Population(hyperband(), 0).scheduler.on_idle(view_of())


@pytest.mark.parametrize("method", ["on_trial_complete", "on_trial_error", "on_trial_remove"])
def test_who_ends_is_not_waited_for(method: str) -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=4, reduction_factor=2), 4)
    population.chosen()
    for name in ("t0", "t1", "t2"):
        population.report(name, 1, float(name[1]))
    trial = population.trials["t3"]
    trial.status = "TERMINATED"
    result = [{"training_iteration": 1, "score": 9.0}] if method == "on_trial_complete" else []
    requests = getattr(population.scheduler, method)(population.view, trial, *result)
    population.carry_out(requests)
    assert [request.trial_id for request in requests] == ["t0"]
    assert population.chosen() == ["t1", "t2"]


def test_who_reports_seldom_may_pass_several_milestones_at_once() -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=8, reduction_factor=2), 8)
    population.chosen()
    for number in range(7):
        assert population.report(f"t{number}", 5, float(number)) == "PAUSE"
    decision = population.report("t7", 5, 7.0)  # all are beyond 1, 2 and 4: of 8 one is left at once
    assert decision == "CONTINUE"
    assert decision.reason == "continues to 8"
    assert len(decision.requests) == 7


def test_the_smallest_bracket_stops_at_max_t_without_waiting() -> None:
    population = Population(hyperband(max_t=9), 1)
    population.chosen()
    assert population.report("t0", 8, 1.0) == "CONTINUE"
    assert population.report("t0", 9, 1.0) == "STOP"


def test_the_last_go_on_if_they_are_not_to_be_stopped() -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=2, reduction_factor=2, stop_last_trials=False), 2)
    population.chosen()
    assert population.report("t0", 5, 1.0) == "PAUSE"
    assert population.report("t1", 5, 2.0) == "CONTINUE"
    assert population.report("t1", 99, 2.0) == "CONTINUE"
    assert population.trials["t0"].status == "TERMINATED"


def test_a_trial_that_was_paused_by_others_goes_on() -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=4, reduction_factor=2), 4)
    population.chosen()
    population.trials["t0"].status = "PAUSED"  # before its milestone
    assert population.chosen() == ["t0"]


def test_a_late_report_of_a_dropped_trial_stops_it() -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=2, reduction_factor=2), 2)
    population.chosen()
    population.report("t0", 1, 1.0)
    population.report("t1", 1, 2.0)
    assert population.report("t0", 1, 1.0) == "STOP"


def test_repeated_results_after_a_retry_do_no_harm() -> None:
    population = Population(hyperband(HyperBandForBOHB, max_t=4, reduction_factor=2), 4)
    population.chosen()
    for number in (0, 1, 2, 3):
        population.report(f"t{number}", 1, float(number))
    assert population.report("t3", 1, 3.0) == "CONTINUE"


@pytest.mark.parametrize("kind", [HyperBandScheduler, HyperBandForBOHB])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_experiment_ends_keeps_the_best_and_replays(kind: type[HyperBandScheduler], data: st.DataObject) -> None:
    count, slots = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 6))
    options = {"max_t": data.draw(st.integers(1, 20)), "reduction_factor": data.draw(st.integers(2, 4))}
    seed = data.draw(st.integers(0, 99))
    source = random.Random(seed)
    qualities = source.sample(range(1000), count)
    fails = {f"t{source.randrange(count):03}": source.randint(1, 5)} if seed % 2 else {}

    def make() -> HyperBandScheduler:
        return hyperband(kind, **options)

    toy = Toy(
        make(),
        [{"q": quality} for quality in qualities],
        lambda c, step: {"score": c["q"] * step},
        slots=slots,
        last_step=10**6,
        seed=seed,
        fails=fails,
    ).run()
    assert len(toy.ended) == count
    best = max(range(count), key=qualities.__getitem__)
    if f"t{best:03}" not in fails:
        assert toy.ended[f"t{best:03}"] == options["max_t"]
    assert max(toy.ended.values()) <= options["max_t"]
    assert not toy.scheduler._bracket_of  # type: ignore[attr-defined]
    assert len(toy.scheduler._brackets) <= 1  # type: ignore[attr-defined]
    assert_replays(toy, make)


@pytest.mark.parametrize("options", [{"max_t": 0}, {"reduction_factor": 1}])
def test_mistakes(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        hyperband(**options)
