"""Twelve thousand fault schedules of the real kernel hold every invariant; a broken one does not get past them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.core.run.state import Outcome
from holdfast.testing import simulator
from holdfast.testing.schedule import KINDS, OCCASIONS, Schedule
from support.core import mutants_of_attempts, mutants_of_checkpoints, mutants_of_driver, mutants_of_memory

Mutant = Callable[[pytest.MonkeyPatch], None]

SCHEDULES = 12_000  # what fits beside the other tests; make simulate SCHEDULES=N plays more
SEEDS_FOR_A_MUTANT = 5_000
SEEDS_FOR_A_RARE_ONE = 100_000


def kills_a_driver_that_saves_far_away(schedule: Schedule) -> bool:
    return schedule.spec.remote and "driver killed" in schedule.faults


def kills_two_drivers_of_a_cut_off_node(schedule: Schedule) -> bool:
    kills = [kind for kind in schedule.faults if "driver" in kind]
    return "driver killed while a node is cut off" in kills and len(kills) > 1


def stops_while_nodes_fail(schedule: Schedule) -> bool:
    kinds = schedule.faults
    return any("stop asked" in kind for kind in kinds) and any("node" in kind for kind in kinds)


def kills_a_driver_that_finds_damage(schedule: Schedule) -> bool:
    return "damaged checkpoint" in schedule.faults and any("driver" in kind for kind in schedule.faults)


def loses_nodes_of_remote_runs(schedule: Schedule) -> bool:
    return schedule.spec.remote and len(schedule.nodes) > 1 and any("node" in kind for kind in schedule.faults)


def keeps_shards_while_the_world_changes(schedule: Schedule) -> bool:
    spec = schedule.spec
    return (
        schedule.snapshots and not schedule.moves and bool(schedule.nodes) and 0 < spec.min_workers < spec.num_workers
    )


RARE: dict[Mutant, Callable[[Schedule], bool]] = {  # noticed in few schedules, all like these: only these are played
    mutants_of_checkpoints.forgets_what_earlier_attempts_left_to_upload: kills_a_driver_that_saves_far_away,
    mutants_of_checkpoints.obeys_late_words_of_attempts_that_are_gone: lambda s: (
        "message of an old attempt" in s.faults
    ),
    mutants_of_checkpoints.starts_from_what_was_verified_no_more: lambda s: "gather failure" in s.faults,
    mutants_of_attempts.forgets_that_an_error_came_too_often: lambda s: "bug at one report" in s.faults,
    mutants_of_attempts.finishes_though_it_was_asked_to_stop: lambda s: "stop asked with grace" in s.faults,
    mutants_of_attempts.keeps_to_a_point_that_was_given_up: lambda s: "node drained" in s.faults,
    mutants_of_attempts.forgets_who_may_still_train_when_another_driver_dies: kills_two_drivers_of_a_cut_off_node,
    mutants_of_driver.offers_again_what_was_found_damaged: kills_a_driver_that_finds_damage,
    mutants_of_driver.gathers_on_a_node_that_is_lost: loses_nodes_of_remote_runs,
    mutants_of_memory.keeps_what_the_run_has_turned_away_from: keeps_shards_while_the_world_changes,
    mutants_of_attempts.goes_on_for_a_cause_that_comes_after_a_stop: stops_while_nodes_fail,
}


@pytest.mark.timeout(1200)
def test_every_invariant_holds_in_every_schedule() -> None:
    total = simulator.simulate_many(0, SCHEDULES, processes=2)
    assert not total.broken, simulator.explain(total.broken[0].seed)
    assert total.schedules == SCHEDULES
    rare = {kind for kind in (*KINDS, *OCCASIONS) if total.faults.get(kind, 0) < SCHEDULES // 500}
    assert not rare, f"hardly ever tried: {rare}"
    assert set(total.outcomes) == {outcome.value for outcome in Outcome}


def test_a_seed_plays_the_same_run_every_time() -> None:
    for seed in range(20):
        first: list[str] = []
        second: list[str] = []
        assert simulator.simulate(seed, first) == simulator.simulate(seed, second)
        assert first == second


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant",
    [
        *mutants_of_attempts.MUTANTS,
        *mutants_of_checkpoints.MUTANTS,
        *mutants_of_driver.MUTANTS,
        *mutants_of_memory.MUTANTS,
    ],
    ids=lambda m: m.__name__,
)
def test_a_broken_machine_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    seeds = SEEDS_FOR_A_RARE_ONE if mutant in RARE else SEEDS_FOR_A_MUTANT
    found = simulator.simulate_range(0, seeds, RARE.get(mutant))
    assert found.broken, f"{seeds} schedules did not notice"


def test_a_broken_seed_is_told_with_its_last_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants_of_checkpoints.deletes_the_newest(monkeypatch)
    seed = simulator.simulate_range(0, SEEDS_FOR_A_MUTANT).broken[0].seed
    assert simulator.main(["--seed", str(seed), "--trace"]) == 1
    told = capsys.readouterr().out
    assert "AttemptStarted(" in told
    assert f"seed {seed}: BROKEN 2 " in told
