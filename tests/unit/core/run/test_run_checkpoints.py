"""When a checkpoint is committed, under which name, and when it goes."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, Phase, ValidationStatus
from support.core.machine import Machine, every, only


def test_a_checkpoint_is_committed_when_every_rank_has_reported_and_every_part_is_on_disk() -> None:
    machine = Machine().training()
    machine.stage(0, 0)
    assert every(do.Commit, machine.seal(0, 0)) == []
    machine.stage(0, 1)
    commit = only(do.Commit, machine.seal(0, 1))
    assert commit == do.Commit(1, 0, "checkpoint_000001", 1, world_size=2, ranks=(0, 1), validate=False)


def test_a_rank_without_files_counts_by_its_report() -> None:
    machine = Machine().training()
    machine.stage(0, 1)
    machine.seal(0, 1)
    commit = only(do.Commit, machine.feed(ev.Progressed(1, 0, reports=1)))
    assert commit.ranks == (1,)


def test_a_rank_that_has_returned_counts_as_having_reported() -> None:
    machine = Machine().training()
    machine.stage(0, 1)
    machine.seal(0, 1)
    assert only(do.Commit, machine.feed(ev.WorkerReturned(1, 0))).ranks == (1,)


def test_checkpoints_are_committed_one_after_the_other_in_the_order_of_their_reports() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    machine.stage(1, 0, 1)
    assert every(do.Commit, machine.seal(1, 0, 1)) == []
    first = only(do.Commit, machine.seal(0, 0, 1))
    assert first.index == 0
    assert only(do.Commit, machine.committed(first)).index == 1


def test_one_rank_that_asks_for_validation_is_enough() -> None:
    machine = Machine().training()
    machine.stage(0, 0)
    machine.stage(0, 1, validate=True)
    commit = only(do.Commit, machine.seal(0, 0, 1))
    assert commit.validate
    assert only(do.Validate, machine.committed(commit)).id == commit.id


def test_a_name_that_is_taken_gets_the_attempt_behind_it_and_then_the_report() -> None:
    machine = Machine(num_workers=1).training()
    for index in range(3):
        machine.stage(index, 0, name="best")
    assert [p.id for p in machine.state.pending.values()] == ["best", "best-g1", "best-g1-r3"]


def test_the_name_of_a_damaged_checkpoint_is_not_used_again() -> None:
    before = Machine(num_workers=1).training()
    before.commit(0)
    machine = before.restart()
    machine.start(epoch=2)
    machine.feed(ev.Damaged("checkpoint_000001", "gone"))
    machine.ready()
    machine.stage(0, 0)
    assert machine.state.pending[0].id == "checkpoint_000001-g2"


def test_report_numbers_go_on_from_the_checkpoint_that_was_resumed_from() -> None:
    before = Machine(num_workers=1).training()
    before.commit(0)
    machine = before.restart()
    machine.start(epoch=2)
    machine.feed(ev.Verified("checkpoint_000001"))
    machine.ready()
    machine.commit(0)
    assert [c.report for c in machine.state.checkpoints] == [1, 2]


def test_superseded_checkpoints_are_deleted_when_a_newer_one_is_durable() -> None:
    machine = Machine(num_workers=1, num_to_keep=1).training()
    assert every(do.Delete, machine.commit(0)) == []
    assert only(do.Delete, machine.commit(1)).id == "checkpoint_000001"
    assert machine.ids == ["checkpoint_000002"]


def test_what_the_attempt_resumed_from_is_not_deleted_under_it() -> None:
    before = Machine(num_workers=1, num_to_keep=1).training()
    before.commit(0)
    machine = before.restart()
    machine.start(epoch=2)
    machine.feed(ev.Verified("checkpoint_000001"))
    machine.ready()
    assert every(do.Delete, machine.commit(0)) == []
    assert only(do.Delete, machine.commit(1)).id == "checkpoint_000002"


def test_what_is_pinned_is_the_same_live_and_replayed_while_the_run_waits() -> None:
    machine = Machine(num_workers=1).training()
    machine.commit(0)
    for _ in range(2):
        machine.fail()
        machine.gone()
        machine.feed(ev.Verified("checkpoint_000001"))
        machine.ready()
    assert machine.state.phase is Phase.WAITING
    assert machine.state.durable.resume == machine.restart().state.durable.resume


def test_a_validation_ends_with_its_status_and_score() -> None:
    machine = Machine(num_workers=1).training()
    machine.stage(0, 0, validate=True)
    machine.committed(only(do.Commit, machine.seal(0, 0)), score=1.0)
    machine.feed(ev.Validated("checkpoint_000001", ValidationStatus.DONE, score=2.0))
    assert machine.state.checkpoints == (CheckpointRecord("checkpoint_000001", 1, 2.0, ValidationStatus.DONE),)


def test_a_validation_without_a_score_keeps_the_old_one() -> None:
    machine = Machine(num_workers=1).training()
    machine.commit(0, score=1.0)
    machine.feed(ev.Validated("checkpoint_000001", ValidationStatus.TIMEOUT))
    assert machine.state.checkpoints[0].score == 1.0


def test_a_driver_that_takes_over_asks_once_for_each_validation_that_is_open() -> None:
    machine = Machine().training().restart()
    record = CheckpointRecord("found", 1, validation=ValidationStatus.PENDING)
    asked = machine.feed(ev.Committed(record, attempt_number=1, index=-1)) + machine.start(epoch=2)
    assert only(do.Validate, asked).id == "found"
