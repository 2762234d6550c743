"""What the kernel asks the core to decide: what counts in storage, where an attempt ends, and when training waits."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run.backpressure import MOST_WAITING, Behind, must_tell, must_wait
from holdfast.core.run.handover import handover_point, place_again
from holdfast.core.run.ranks import Ranks
from holdfast.core.run.reconciliation import Stored, counts, reconcile
from holdfast.core.run.salvage import is_adoptable
from holdfast.core.run.state import (
    Attempt,
    CheckpointRecord,
    Durable,
    HandoverReason,
    Phase,
    Rank,
    RankStatus,
    RunState,
)

A, B = CheckpointRecord("a", 1), CheckpointRecord("b", 2)


def stored(record: CheckpointRecord, attempt_number: int = 1, index: int = 0) -> Stored:
    return Stored(ev.Committed(record, attempt_number), index)


def test_what_the_journal_does_not_know_is_taken_over() -> None:
    stock = reconcile(Durable(checkpoints=(A,)), set(), [stored(A), stored(B)], {})
    assert [event.record.id for event in stock.events if isinstance(event, ev.Committed)] == ["b"]


def test_what_was_given_up_or_found_damaged_stays_so() -> None:
    stock = reconcile(Durable(damaged=frozenset({"b"})), {(1, 0)}, [stored(A), stored(B, index=1)], {})
    assert (list(stock.events), stock.unwanted, stock.damaged) == ([], ["a"], ["b"])


def test_a_checkpoint_without_its_manifest_is_damaged() -> None:
    stock = reconcile(Durable(checkpoints=(A, B)), set(), [stored(B)], {"a": "its manifest is missing"})
    assert list(stock.events) == [ev.Damaged("a", "its manifest is missing")]


def test_what_a_relieved_driver_commits_late_does_not_count() -> None:
    durable = Durable(epoch=3, checkpoints=(A,))
    assert counts(durable, set(), "a", epoch=1)
    assert counts(durable, set(), "b", epoch=3)
    assert not counts(durable, set(), "b", epoch=2)
    assert not counts(durable, {"b"}, "b", epoch=3)


def test_only_what_the_run_has_built_on_is_adopted() -> None:
    durable, until = Durable(checkpoints=(A,)), {1: 2.0}
    assert is_adoptable(durable, B, (1, 1), set(), until)
    assert not is_adoptable(durable, A, (1, 0), set(), until)
    assert not is_adoptable(durable, B, (1, 1), {(1, 1)}, until)
    assert not is_adoptable(durable, CheckpointRecord("c", 3), (1, 2), set(), until)
    assert not is_adoptable(durable, B, (2, 1), set(), until)


def attempt(*ranks: Rank, phase: Phase = Phase.RUNNING, capacity: int | None = None) -> RunState:
    return RunState(Durable(attempt_number=1), Attempt(Ranks(ranks), 0.0), phase, capacity=capacity)


def test_an_attempt_ends_at_the_first_report_that_no_rank_can_have_made() -> None:
    state = attempt(Rank(RankStatus.RUNNING), Rank(RankStatus.RUNNING))
    assert handover_point(state, {0: 3}) is None
    assert handover_point(state, {0: 3, 1: 5}) == 6
    returned = attempt(Rank(RankStatus.RUNNING), Rank(RankStatus.RETURNED))
    assert handover_point(returned, {0: 3}) == 4


def test_only_an_attempt_that_has_made_nothing_is_placed_again() -> None:
    fresh, begun = attempt(Rank(RankStatus.RUNNING)), attempt(Rank(RankStatus.RUNNING, reports=1))
    assert place_again(fresh, is_well_placed=False) == ev.HandedOver(1, HandoverReason.RESIZE)
    assert place_again(fresh, is_well_placed=True) is None
    assert place_again(begun, is_well_placed=False) is None
    assert place_again(attempt(Rank(), capacity=0), is_well_placed=False) is None


def test_training_waits_above_a_limit_and_resumes_below_half_of_it() -> None:
    assert must_wait(Behind(1, 11), False, 10, None)
    assert not must_wait(Behind(1, 10), False, 10, None)
    assert must_wait(Behind(1, 6), True, 10, None)
    assert not must_wait(Behind(1, 5), True, 10, None)
    assert must_wait(Behind(MOST_WAITING + 1, 0), False, 10, None)


def test_without_a_limit_half_of_the_space_may_be_filled() -> None:
    assert must_wait(Behind(1, 100), False, 0, 99)
    assert not must_wait(Behind(1, 100), False, 0, 100)
    assert not must_wait(Behind(1, 100), False, 0, None)


def test_a_person_is_told_once_a_minute() -> None:
    assert must_tell(Behind(1, 1, 61.0), now=100.0, told_at=30.0)
    assert not must_tell(Behind(1, 1, 61.0), now=100.0, told_at=60.0)
    assert not must_tell(Behind(1, 1, 59.0), now=100.0, told_at=0.0)
