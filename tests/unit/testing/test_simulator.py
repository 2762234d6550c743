"""Fifty thousand fault schedules of the real kernel hold every invariant; a broken one does not get past them."""

from __future__ import annotations

import pytest

from holdfast.core.run.state import Outcome
from holdfast.testing import simulator
from holdfast.testing.schedule import KINDS, OCCASIONS
from support.core import mutants_of_checkpoints, run_mutants

SCHEDULES = 50_000


@pytest.mark.timeout(1200)
def test_every_invariant_holds_in_every_schedule() -> None:
    total = simulator.simulate_many(0, SCHEDULES, processes=2)
    assert not total.broken, simulator.explain(total.broken[0].seed)
    assert total.schedules == SCHEDULES
    rare = {kind for kind in (*KINDS, *OCCASIONS) if total.faults.get(kind, 0) < SCHEDULES // 1000}
    assert not rare, f"hardly ever tried: {rare}"
    assert set(total.outcomes) == {outcome.value for outcome in Outcome}


def test_a_seed_plays_the_same_run_every_time() -> None:
    for seed in range(20):
        first: list[str] = []
        second: list[str] = []
        assert simulator.simulate(seed, first) == simulator.simulate(seed, second)
        assert first == second


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", run_mutants.MUTANTS, ids=lambda m: m.__name__)
def test_a_broken_machine_is_caught(mutant: run_mutants.Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert run_mutants.noticed(mutant) is not None, "no schedule noticed"


def test_a_broken_seed_is_told_with_its_last_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants_of_checkpoints.deletes_the_newest(monkeypatch)
    seed = simulator.simulate_range(0, run_mutants.SEEDS_FOR_A_MUTANT).broken[0].seed
    assert simulator.main(["--seed", str(seed), "--trace"]) == 1
    told = capsys.readouterr().out
    assert "AttemptStarted(" in told
    assert f"seed {seed}: BROKEN 2 " in told
