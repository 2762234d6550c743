"""The mutants of a run's decisions, and in which schedules the simulator notices them.

Most are noticed within a few hundred schedules, some in one of thousands. ``noticing_seeds.json`` has the seed of the
first schedule that noticed each, which is played first, so that a test need not look for it again. After a change to
what schedules are drawn, ``python -m support.core.run_mutants`` looks for all of them, and writes the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.testing import simulator
from holdfast.testing.schedule import Schedule
from support.core import mutants_of_attempts, mutants_of_checkpoints, mutants_of_driver, mutants_of_memory

Mutant = Callable[[pytest.MonkeyPatch], None]

SEEDS_FOR_A_MUTANT = 5_000
SEEDS_FOR_A_RARE_ONE = 100_000
MUTANTS: list[Mutant] = [
    *mutants_of_attempts.MUTANTS,
    *mutants_of_checkpoints.MUTANTS,
    *mutants_of_driver.MUTANTS,
    *mutants_of_memory.MUTANTS,
]
_SEEDS = Path(__file__).with_name("noticing_seeds.json")


def kills_a_driver_that_saves_far_away(schedule: Schedule) -> bool:
    return schedule.spec.nodes_hold_files and "driver killed" in schedule.faults


def kills_two_drivers_of_a_cut_off_node(schedule: Schedule) -> bool:
    kills = [kind for kind in schedule.faults if "driver" in kind]
    return "driver killed while a node is cut off" in kills and len(kills) > 1


def stops_while_nodes_fail(schedule: Schedule) -> bool:
    kinds = schedule.faults
    return any("stop asked" in kind for kind in kinds) and any("node" in kind for kind in kinds)


def kills_a_driver_that_finds_damage(schedule: Schedule) -> bool:
    return "damaged checkpoint" in schedule.faults and any("driver" in kind for kind in schedule.faults)


def loses_nodes_of_remote_runs(schedule: Schedule) -> bool:
    return (
        schedule.spec.nodes_hold_files and len(schedule.nodes) > 1 and any("node" in kind for kind in schedule.faults)
    )


def keeps_shards_while_the_world_changes(schedule: Schedule) -> bool:
    spec = schedule.spec
    return (
        schedule.snapshots and not schedule.moves and bool(schedule.nodes) and 0 < spec.min_workers < spec.num_workers
    )


def kills_a_driver_where_a_name_is_used_again(schedule: Schedule) -> bool:
    is_fixed = any(name and "{" not in name for name in schedule.workload.names)
    return is_fixed and not schedule.spec.nodes_hold_files and "driver killed" in schedule.faults


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
    mutants_of_attempts.waits_for_one_of_the_nodes_that_cannot_be_reached: lambda s: (
        "driver killed while a node is cut off" in s.faults
    ),
    mutants_of_driver.adopts_what_was_given_up: kills_a_driver_that_saves_far_away,
    mutants_of_checkpoints.gives_what_it_takes_up_a_name_that_storage_has: kills_a_driver_where_a_name_is_used_again,
    mutants_of_memory.gives_shards_to_another_number_of_workers: keeps_shards_while_the_world_changes,
}


def noticed(mutant: Mutant) -> simulator.Broken | None:
    """Play schedules until one notices the mutant, which is in force."""
    known = _known().get(mutant.__name__)
    found = simulator.simulate_range(known, 1) if known is not None else simulator.Tally()
    if not found.broken:
        seeds = SEEDS_FOR_A_RARE_ONE if mutant in RARE else SEEDS_FOR_A_MUTANT
        found = simulator.simulate_range(0, seeds, RARE.get(mutant))
    return found.broken[0] if found.broken else None


def _known() -> dict[str, int]:
    return msgspec.json.decode(_SEEDS.read_bytes(), type=dict[str, int])


def main() -> None:
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant(patch)
            broken = noticed(mutant)
        print(f"{mutant.__name__}: {'not noticed' if broken is None else broken.seed}", flush=True)
        if broken is not None:  # written down at once: to look for all of them takes minutes
            seeds = dict(sorted((_known() | {mutant.__name__: broken.seed}).items()))
            _SEEDS.write_bytes(msgspec.json.format(msgspec.json.encode(seeds), indent=2) + b"\n")


if __name__ == "__main__":
    main()
