"""Lost ranks are replaced alone, by the real kernel: kills at every event, several at once; mistakes are noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
from msgspec import structs

from holdfast.core.run.state import Outcome, RunSpec
from holdfast.testing import simulator
from holdfast.testing.fates import Violation
from holdfast.testing.schedule import MAX_WORLD, Schedule, Workload
from support.core import mutants_of_live

Mutant = Callable[[pytest.MonkeyPatch], None]
SEEDS_FOR_A_MUTANT = 30_000
REPLACED_WITHIN = 45  # events
LIKELY: dict[Mutant, Callable[[Schedule], bool]] = {  # noticed in few schedules, all like these: only these are played
    mutants_of_live.starts_a_rank_of_an_attempt_that_ends: lambda s: s.spec.nodes_hold_files and len(s.faults) > 4,
    mutants_of_live.has_reports_of_the_lost_rank_made_again: lambda s: "worker killed in a collective" in s.faults,
    mutants_of_live.watches_for_one_hang_only: lambda s: "hang" in s.faults,
}
TARGETS = (("worker", 0), ("worker", 1), ("standby", 0), ("node", 0), ("node", 1), ("driver", 0))


def schedule_of(remote: bool, with_nodes: bool, standbys: int, is_live: bool = True, replicas: int = 1) -> Schedule:
    """Nothing happens in it but what a test makes happen."""
    spec = RunSpec(
        num_workers=3,
        max_failures=-1,
        backoff_s=0.5,
        start_timeout_s=20.0,
        hang_timeout_s=30.0,
        stopped_grace_s=2.0,
        regroup_timeout_s=10.0 if is_live else 0.0,
        standby_workers=standbys,
        nodes_hold_files=remote,
        lease_s=15.0 if with_nodes else 0.0,
    )
    workload = Workload(
        totals=(4,) * MAX_WORLD,
        files_every=(2,) * MAX_WORLD,
        pace=(0.3,) * MAX_WORLD,
        names=(),
        validate_every=0,
        urgent_every=0,
        scores=(),
        upload_s=0.5,
        bug_at=99,
        bug_times=0,
    )
    nodes = ((2, 0.0), (1, 0.0), (2, 0.0)) if with_nodes else ()
    return Schedule(spec, workload, {}, (3,), 64, 1 << 50, 0, nodes, snapshots=True, replicas=replicas)


def events_of(schedule: Schedule) -> int:
    """How many there are in the run if nothing happens."""
    trace: list[str] = []
    turns = 0
    for turns in range(10, 2_000, 10):
        struck = simulator.play(schedule, Random(1), trace, {turns: [("driver", 0)]}).faults
        if "driver killed" not in struck:
            break
    return turns


def strikes_in(events: int, every: int) -> Iterator[dict[int, list[tuple[str, int]]]]:
    """A kill at each event; a second one, or two at once, at each event while a rank is being replaced. ``every``: not
    at all of them, but at every so manieth."""
    for at in range(0, events, every):
        yield from ({at: [target]} for target in TARGETS)
    for first in range(events // 3, events, max(1, events // 6)):
        for later in range(first % every, REPLACED_WITHIN, every):
            for number, target in enumerate(TARGETS):
                also = [TARGETS[(number + later) % len(TARGETS)]] if later % 3 == 0 else []
                yield {
                    first: [("worker", later), *([target, *also] if not later else [])],
                    first + later: [target, *also],
                }


def check_strikes(remote: bool, with_nodes: bool, every: int) -> Counter[str]:
    happened: Counter[str] = Counter()
    for standbys in (0, 1):
        schedule = schedule_of(remote, with_nodes, standbys)
        for strikes in strikes_in(events_of(schedule), every):
            try:
                found = simulator.play(schedule, Random(min(strikes)), None, strikes)
            except Violation as violation:
                raise AssertionError(f"standbys={standbys} {strikes}: {violation}") from None
            happened.update(found.faults)
            assert found.outcomes == {Outcome.FINISHED.value: 1}, f"standbys={standbys} {strikes}"
    return happened


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "remote"])
@pytest.mark.parametrize("with_nodes", [False, True], ids=["here", "nodes"])
def test_kills_while_ranks_are_being_replaced(remote: bool, with_nodes: bool) -> None:
    happened = check_strikes(remote, with_nodes, every=9)
    assert happened["a rank was replaced alone"] > 50, happened
    assert happened["a standby took a rank"] > 10, happened


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("remote", [False, True], ids=["disk", "remote"])
@pytest.mark.parametrize("with_nodes", [False, True], ids=["here", "nodes"])
def test_kills_at_every_event(remote: bool, with_nodes: bool) -> None:
    happened = check_strikes(remote, with_nodes, every=1)
    assert happened["a survivor took the step that others had completed"] > 10, happened
    assert happened["ranks could not be replaced alone"] > 10, happened


OF_MEMORY = (  # what is lost at once; the run has a node more than it needs
    [("worker", 0)],
    [("worker", 0), ("worker", 1)],
    [("node", 0)],
    [("node", 1)],
    [("node", 0), ("node", 1)],
    [("node", 0), ("node", 1), ("driver", 0)],
)


def check_memory(remote: bool, replicas: int, every: int) -> Counter[str]:
    """A loss at each event, and another one at some events behind it."""
    schedule = schedule_of(remote, True, 0, is_live=False, replicas=replicas)
    workload = structs.replace(schedule.workload, totals=(12,) * MAX_WORLD, files_every=(7,) * MAX_WORLD)
    schedule = structs.replace(schedule, workload=workload, nodes=((1, 0.0),) * 4)
    events, happened = events_of(schedule), Counter[str]()
    for number, at in enumerate(range(0, events, every)):
        for lost in OF_MEMORY:
            again = at + 1 + 7 * (number % 5)
            for strikes in ({at: lost}, {at: lost, again: OF_MEMORY[number % len(OF_MEMORY)]}):
                try:
                    found = simulator.play(schedule, Random(at), None, strikes)
                except Violation as violation:
                    raise AssertionError(f"replicas={replicas} {strikes}: {violation}") from None
                happened.update(found.faults)
                assert found.outcomes == {Outcome.FINISHED.value: 1}, f"replicas={replicas} {strikes}"
    return happened


@pytest.mark.parametrize("remote", [False, True], ids=["disk", "remote"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_losses_with_state_in_the_memory_of_several_nodes(remote: bool, replicas: int) -> None:
    happened = check_memory(remote, replicas, every=9)
    assert happened["an attempt resumed from memory"] > 10, happened
    assert happened["an attempt resumed from the memory of another node"] > 3, happened


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("remote", [False, True], ids=["disk", "remote"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_losses_at_every_event_with_state_in_the_memory_of_several_nodes(remote: bool, replicas: int) -> None:
    happened = check_memory(remote, replicas, every=1)
    print(happened)
    assert happened["an attempt resumed from the memory of another node"] > 20, happened


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", mutants_of_live.MUTANTS, ids=lambda m: m.__name__)
def test_a_broken_replacement_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    found = simulator.simulate_range(0, SEEDS_FOR_A_MUTANT, lambda s: s.is_live and LIKELY.get(mutant, bool)(s))
    assert found.broken, f"{SEEDS_FOR_A_MUTANT} schedules did not notice"
