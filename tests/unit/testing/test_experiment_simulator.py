"""Ten thousand fault schedules of experiments hold every invariant; and a broken core does not get past them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.testing import experiment_simulator as simulator
from holdfast.testing.experiment_schedule import SCHEDULERS, SEARCHERS, STOPPERS
from support.core import mutants_of_experiments

Mutant = Callable[[pytest.MonkeyPatch], None]
SCHEDULES = 10_000
SEEDS_FOR_A_MUTANT = 2_000
HAPPEN = (
    *("killed at a write", "killed at written", "killed at an answer", "killed at a callback", "killed at a turn"),
    *("killed at plan", "node lost", "interrupted", "failed", "finished", "stopped", "exploited"),
    *("answer PAUSE", "answer STOP", "request Exploit", "request Resize", "request Save", "request StopTrial"),
)


@pytest.mark.timeout(1200)
def test_every_invariant_holds_in_every_schedule() -> None:
    played = simulator.simulate_many(0, SCHEDULES, processes=2)
    assert not played["broken"]
    assert played["happened"]["schedules"] == SCHEDULES
    rare = {what for what in HAPPEN if played["happened"].get(what, 0) < 100}
    assert not rare, f"hardly ever tried: {rare}"


def test_a_seed_plays_the_same_experiment_every_time() -> None:
    for seed in range(20):
        first: list[str] = []
        second: list[str] = []
        simulator.simulate(seed, first)
        simulator.simulate(seed, second)
        assert first == second


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_driver_is_killed_at_each_of_its_steps(scheduler: str) -> None:
    """One experiment, and a second driver that resumes it from wherever the first came to."""
    for at in range(1, 150):
        changed = {"scheduler": scheduler, "kills": (at,), "num_samples": 3, "storage_s": 0.0, "interrupts": ()}
        played = simulator.simulate(7, **changed, fail_fast=False, stopper="none")
        if played.outcome == "finished" and played.drivers == 1:
            return  # it has fewer steps


@pytest.mark.timeout(300)
def test_optuna_learns_the_same_after_a_restore() -> None:
    for seed in range(12):
        assert simulator.simulate(seed, searcher="optuna", fail_fast=False).outcome == "finished"


def test_every_scheduler_searcher_and_stopper_is_drawn() -> None:
    drawn = [simulator.draw(seed) for seed in range(300)]
    assert {schedule.scheduler for schedule in drawn} == set(SCHEDULERS)
    assert {schedule.searcher for schedule in drawn} == set(SEARCHERS)
    assert {schedule.stopper for schedule in drawn} == set(STOPPERS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", mutants_of_experiments.MUTANTS, ids=lambda m: m.__name__)
def test_a_broken_core_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert simulator.simulate_range(0, SEEDS_FOR_A_MUTANT)["broken"], f"{SEEDS_FOR_A_MUTANT} schedules did not notice"


def test_a_broken_seed_is_told_step_by_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants_of_experiments.does_not_journal_answers(monkeypatch)
    seed = simulator.simulate_range(0, SEEDS_FOR_A_MUTANT)["broken"].split()[1]
    assert simulator.main(["--seed", seed]) == 1
    told = capsys.readouterr().out
    assert "Started {" in told
    assert f"seed {seed}: BROKEN a replay comes to the live state" in told
