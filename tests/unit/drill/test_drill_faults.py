"""How faults are written, and how a plan is drawn."""

from __future__ import annotations

import pytest

from holdfast.drill.fault_plan import plan
from holdfast.drill.faults import KINDS, Address, Fault, parse
from holdfast.drill.nodes import OF_NODES
from holdfast.drill.outcome import SeenAttempt
from support.drill.drill_outcomes import outcome


@pytest.mark.parametrize("name", KINDS)
def test_a_fault_is_written_as_it_is_read(name: str) -> None:
    for point in KINDS[name].points:
        fault = Fault(name, rank=1, step=5, point=point, seconds=KINDS[name].seconds + 1)
        again = parse(str(fault))
        assert (again.rank, again.step, again.point or KINDS[name].points[0]) == (1, 5, point)
        assert again.seconds == fault.seconds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rain", "unknown fault 'rain'"),
        ("stop@rank", "'rank' is not known"),
        ("stop@colour=red", "'colour=red' is not known"),
        ("stop@step=0", "steps from 1"),
        ("stop@rank=-1", "ranks count from 0"),
        ("stop@step=soon", "whole numbers"),
        ("driver-kill@point=staged", "Use one of report, files"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse(text)


def test_a_plan_is_the_same_for_the_same_seed() -> None:
    addresses = [Address(name) for name in KINDS]
    runs = [outcome(steps=50)]
    first, _ = plan(addresses, runs, seed=3)
    again, _ = plan(addresses, runs, seed=3)
    other, _ = plan(addresses, runs, seed=4)
    assert first == again != other
    assert all(2 <= fault.step <= 49 and fault.rank in (0, 1) for fault in first)


def test_a_fault_alone_is_the_same_as_among_others() -> None:
    runs = [outcome(steps=50)]
    together, _ = plan([Address(name) for name in KINDS], runs, seed=1)
    for fault in together:
        assert plan([Address(fault.name)], runs, seed=1)[0] == [fault]


def test_the_same_fault_twice_is_drawn_twice() -> None:
    faults, _ = plan([Address("worker-kill")] * 5, [outcome(steps=1000)], seed=0)
    assert len(set(faults)) > 1


def test_what_is_given_is_kept() -> None:
    faults, _ = plan([parse("drain@rank=7,step=9,seconds=1.5")], [outcome(steps=3)], seed=0)
    assert faults == [Fault("drain", rank=7, step=9, point="report", seconds=1.5)]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_short_run_has_a_plan_too(steps: int) -> None:
    faults, _ = plan([Address(name) for name in KINDS], [outcome(steps=steps)], seed=0)
    assert all(1 <= fault.step <= steps for fault in faults)


def test_a_point_that_needs_files_is_drawn_where_there_are_some() -> None:
    run = outcome(steps=30)
    run.checkpoint_steps = [5, 10]
    for rank, notes in run.records.items():
        for step, note in notes.items():
            note["files"] = {"state.pt": "digest"} if rank == 0 and step in (5, 10) else {}
    for seed in range(50):
        faults, _ = plan([parse("worker-kill@point=staged"), parse("driver-kill@point=manifest")], [run], seed)
        assert faults[0].rank == 0
        assert all(7 <= fault.step <= 10 for fault in faults)


def test_without_checkpoints_no_point_needs_one() -> None:
    run = outcome(steps=30)
    run.checkpoint_steps = []
    for notes in run.records.values():
        for note in notes.values():
            note["files"] = {}
    for seed in range(20):
        faults, skipped = plan([Address(name) for name in KINDS], [run], seed)
        assert {fault.point for fault in faults} <= {"before", "after", "report", "reduce", "update"}
        assert [name for name, _ in skipped] == ["corruption"]


def test_memory_is_damaged_where_there_is_something_in_it() -> None:
    run = outcome(steps=9)
    assert [fault.name for fault in plan([Address("memory-corruption")], [run], seed=0)[0]] == ["memory-corruption"]
    for notes in run.records.values():
        for note in notes.values():
            note["in_memory"] = False
    assert plan([Address("memory-corruption")], [run], seed=0)[0] == []


@pytest.mark.parametrize(("name", "what"), [("reduce-kill", "reduces"), ("update-kill", "steps")])
def test_a_fault_within_a_step_needs_such_steps(name: str, what: str) -> None:
    run = outcome(steps=9)
    assert [fault.name for fault in plan([Address(name)], [run], seed=0)[0]] == [name]
    for notes in run.records.values():
        for note in notes.values():
            note[what] = 0
    assert [skipped for skipped, _ in plan([Address(name)], [run], seed=0)[1]] == [name]


def test_one_worker_alone_reduces_nothing() -> None:
    assert plan([Address("reduce-kill")], [outcome(steps=9, workers=1)], seed=0)[0] == []


def test_a_run_that_changes_its_size_by_itself_is_struck_early_and_keeps_its_nodes() -> None:
    run = outcome(steps=40)
    run.attempts.append(SeenAttempt(2, 20, 1, "checkpoint_000020"))
    for seed in range(20):
        faults, skipped = plan([Address(name) for name in KINDS], [run], seed)
        assert all(fault.step <= 20 for fault in faults)
        assert [name for name, _ in skipped] == ["node-kill", "partition", "drain"]


def test_a_train_function_in_the_drivers_process_is_not_stopped() -> None:
    run = outcome(steps=9, cannot=dict.fromkeys(OF_NODES, "why"))
    run.identity["scaling"] = {"num_workers": 0}
    assert "stop" in {name for name, _ in plan([Address(name) for name in KINDS], [run], seed=0)[1]}


def test_nodes_that_cannot_be_taken_away_are_skipped() -> None:
    faults, skipped = plan(
        [Address(name) for name in KINDS], [outcome(steps=9, cannot=dict.fromkeys(OF_NODES, "why"))], seed=0
    )
    assert {name for name, _ in skipped} == {"node-kill", "partition", "drain"}
    assert not {fault.name for fault in faults} & {"node-kill", "partition", "drain"}
