"""How a run starts, what it watches, whom it hears, and how it ends."""

from __future__ import annotations

from holdfast.core.failures import FailureKind
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import phases, step, timers
from holdfast.core.run.state import CheckpointRecord, Outcome, Phase, ValidationStatus
from support.core.machine import CRASH, Machine, every, only


def test_a_new_run_starts_its_attempt_from_the_beginning() -> None:
    machine = Machine(num_workers=3)
    assert only(do.StartAttempt, machine.start()) == do.StartAttempt(1, 3, resume=None, base=0)
    assert machine.state.phase is Phase.STARTING


def test_the_attempt_trains_when_every_rank_is_ready() -> None:
    machine = Machine()
    machine.start()
    machine.feed(ev.WorkerReady(1, 0))
    assert machine.state.phase is Phase.STARTING
    assert do.CancelTimer(timers.START) in machine.feed(ev.WorkerReady(1, 1))
    assert machine.state.phase is Phase.RUNNING


def test_a_driver_that_takes_over_verifies_the_newest_checkpoint_and_starts_from_it() -> None:
    before = Machine().training()
    before.commit(0)
    before.commit(1)
    machine = before.restart()
    asked = machine.start(epoch=2)
    assert only(do.Verify, asked).id == "checkpoint_000002"
    assert every(do.StartAttempt, asked) == []
    asked = machine.feed(ev.Verified("checkpoint_000002"))
    assert only(do.StartAttempt, asked) == do.StartAttempt(2, 2, "checkpoint_000002", base=2)


def test_a_damaged_checkpoint_is_set_aside_and_the_next_older_one_is_tried() -> None:
    before = Machine().training()
    before.commit(0)
    before.commit(1)
    machine = before.restart()
    machine.start(epoch=2)
    asked = machine.feed(ev.Damaged("checkpoint_000002", "a digest differs"))
    assert only(do.Quarantine, asked).id == "checkpoint_000002"
    assert "checkpoint_000002" in only(do.Warn, asked).text
    assert only(do.Verify, asked).id == "checkpoint_000001"
    assert machine.ids == ["checkpoint_000001"]
    assert only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))).base == 1


def test_when_every_checkpoint_is_damaged_the_run_starts_from_the_beginning() -> None:
    before = Machine().training()
    before.commit(0)
    machine = before.restart()
    machine.start(epoch=2)
    asked = machine.feed(ev.Damaged("checkpoint_000001", "gone"))
    assert only(do.StartAttempt, asked) == do.StartAttempt(2, 2, None, base=0)


def test_a_verification_that_nobody_waits_for_changes_nothing() -> None:
    machine = Machine().training()
    machine.commit(0)
    assert machine.feed(ev.Verified("checkpoint_000001"), ev.Verified("other")) == []
    assert machine.state.phase is Phase.RUNNING


def test_damage_found_before_the_driver_begins_starts_nothing() -> None:
    before = Machine().training()
    before.commit(0)
    dead_in_restoring = before.restart()
    dead_in_restoring.start(epoch=2)
    machine = dead_in_restoring.restart()
    found = machine.feed(ev.Damaged("checkpoint_000001", "its manifest is missing"))
    assert every(do.StartAttempt, found) == every(do.Verify, found) == []
    assert len(every(do.StartAttempt, machine.start(epoch=3))) == 1


def test_a_manifest_that_the_journal_does_not_know_is_taken_in_and_resumed_from() -> None:
    machine = Machine().training().restart()
    machine.feed(ev.Committed(CheckpointRecord("checkpoint_000004", 4), attempt_number=1, index=-1))
    assert only(do.Verify, machine.start(epoch=2)).id == "checkpoint_000004"


def test_an_attempt_that_does_not_start_in_time_has_failed_to_start() -> None:
    machine = Machine(start_timeout_s=9.0)
    assert do.SetTimer(timers.START, 9.0) in machine.start()
    machine.feed(ev.WorkerReady(1, 0))
    machine.feed(ev.TimerFired(timers.START))
    assert machine.state.failure is not None
    assert (machine.state.failure.rank, machine.state.failure.kind) == (1, FailureKind.START_UP)


def test_a_rank_that_makes_no_progress_hangs() -> None:
    machine = Machine(hang_timeout_s=10.0).training()
    machine.now = 6.0
    machine.feed(ev.Progressed(1, 0, 1))
    machine.now = 10.0
    machine.feed(ev.TimerFired(timers.HANG))
    assert machine.state.failure is not None
    assert (machine.state.failure.rank, machine.state.failure.kind) == (1, FailureKind.HANG)


def test_while_all_make_progress_the_watch_is_set_again() -> None:
    machine = Machine(hang_timeout_s=10.0).training()
    machine.now = 6.0
    machine.feed(ev.Progressed(1, 0, 1), ev.Progressed(1, 1, 1))
    machine.now = 10.0
    assert machine.feed(ev.TimerFired(timers.HANG)) == [do.SetTimer(timers.HANG, 6.0)]


def test_a_stopped_process_that_is_not_continued_in_time_hangs() -> None:
    machine = Machine(stopped_grace_s=2.0).training()
    assert machine.feed(ev.WorkerStopped(1, 1, stopped=True)) == [do.SetTimer(timers.stopped(1), 2.0)]
    machine.feed(ev.TimerFired(timers.stopped(1)))
    assert machine.state.failure is not None
    assert (machine.state.failure.rank, machine.state.failure.kind) == (1, FailureKind.HANG)


def test_a_stopped_process_that_goes_on_is_forgiven() -> None:
    machine = Machine(stopped_grace_s=2.0).training()
    machine.feed(ev.WorkerStopped(1, 1, stopped=True))
    assert machine.feed(ev.WorkerStopped(1, 1, stopped=False)) == [do.CancelTimer(timers.stopped(1))]
    machine.feed(ev.TimerFired(timers.stopped(1)))
    assert machine.state.phase is Phase.RUNNING


def test_a_warning_names_the_ranks_whose_report_is_missing() -> None:
    machine = Machine(num_workers=3, missing_warning_s=30.0).training()
    first = machine.feed(ev.ShardStaged(1, 1, 0))
    assert only(do.SetTimer, first).after_s < 30.0, "where only one rank ever reports, the user hears of it soon"
    asked = machine.feed(ev.TimerFired(timers.missing(0)))
    text = only(do.Warn, asked).text
    assert text.startswith("checkpoint_000001 is not saved yet: ranks 0, 2 have not called train.report().")
    assert "rank_zero_only" not in text
    assert do.SetTimer(timers.missing(0), 30.0) in asked
    assert do.SetTimer(timers.missing(1), 30.0) in machine.feed(ev.ShardStaged(1, 1, 1))
    machine.feed(ev.ShardStaged(1, 0, 0))
    second = only(do.Warn, machine.feed(ev.TimerFired(timers.missing(1)))).text
    assert "not saved yet: ranks 0, 2 have called train.report() at most 1 time. Call it" in second
    machine.feed(ev.ShardStaged(1, 2, 0), ev.ShardStaged(1, 2, 1))
    third = only(do.Warn, machine.feed(ev.TimerFired(timers.missing(1)))).text
    assert "not saved yet: rank 0 has called train.report() only 1 time. Call it" in third


def test_a_script_in_which_only_rank_0_reports_hears_of_the_setting_for_it() -> None:
    machine = Machine(num_workers=5, missing_warning_s=30.0).training()
    machine.feed(ev.ShardStaged(1, 0, 0))
    text = only(do.Warn, machine.feed(ev.TimerFired(timers.missing(0)))).text
    assert "ranks 1-4 have not called" in text
    assert "CheckpointConfig(rank_zero_only=True)" in text


def test_with_that_setting_the_checkpoint_of_rank_0_is_whole() -> None:
    machine = Machine(num_workers=3, rank_zero_only=True, missing_warning_s=30.0).training()
    machine.feed(ev.ShardStaged(1, 0, 0))
    commit = only(do.Commit, machine.feed(ev.ShardSealed(1, 0, 0)))
    assert (commit.world_size, commit.ranks) == (3, (0,))


def test_a_rank_that_never_reports_does_not_hang_while_rank_0_reports() -> None:
    machine = Machine(num_workers=2, rank_zero_only=True, hang_timeout_s=10.0).training()
    machine.now = 6.0
    machine.feed(ev.Progressed(1, 0, 1))
    machine.now = 10.0
    assert machine.feed(ev.TimerFired(timers.HANG)) == [do.SetTimer(timers.HANG, 6.0)]
    machine.now = 12.0
    machine.feed(ev.WorkerReturned(1, 0))
    machine.now = 22.0
    machine.feed(ev.TimerFired(timers.HANG))
    machine.feed(ev.StacksTaken(1, -1))
    assert machine.state.failure is not None
    assert (machine.state.failure.rank, machine.state.failure.kind) == (1, FailureKind.HANG)


def test_what_an_older_attempt_says_is_not_acted_on() -> None:
    machine = Machine().training()
    machine.fail()
    machine.gone()
    machine.ready()
    before = machine.state
    old = [
        ev.WorkerReady(1, 0),
        ev.Progressed(1, 0, 9),
        ev.WorkerReturned(1, 0),
        ev.WorkerFailed(1, 0, CRASH),
        ev.WorkerStopped(1, 0, stopped=True),
        ev.AttemptGone(1),
        ev.ShardFailed(1, 0, 0, "no space"),
        ev.CommitFailed(1, 0, "no space"),
    ]
    assert machine.feed(*old) == []
    assert machine.feed(ev.ShardStaged(1, 0, 0), ev.ShardSealed(1, 0, 0)) == [do.Discard(1, 0)] * 2
    assert machine.state == before


def test_the_run_finishes_when_every_rank_returned_and_all_is_durable() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    assert only(do.StopAttempt, machine.all_return()).graceful
    assert every(do.Finish, machine.gone()) == []
    asked = machine.committed(only(do.Commit, machine.seal(0, 0, 1)))
    assert only(do.Finish, asked).outcome is Outcome.FINISHED


def test_the_run_waits_for_its_validations_before_it_finishes() -> None:
    machine = Machine(num_workers=1).training()
    machine.stage(0, 0, validate=True)
    machine.committed(only(do.Commit, machine.seal(0, 0)))
    machine.all_return()
    assert every(do.Finish, machine.gone()) == []
    asked = machine.feed(ev.Validated("checkpoint_000001", ValidationStatus.FAILED))
    assert only(do.Finish, asked).outcome is Outcome.FINISHED


def test_a_stop_ends_the_attempt_gently_and_makes_durable_what_is_complete() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    assert only(do.StopAttempt, machine.feed(ev.StopAsked())).graceful
    machine.fail()
    assert machine.state.durable.spent == {}
    machine.gone()
    asked = machine.committed(only(do.Commit, machine.seal(0, 0, 1)))
    assert only(do.Finish, asked).outcome is Outcome.STOPPED


def test_a_second_stop_ends_the_run_at_once() -> None:
    machine = Machine().training()
    machine.feed(ev.StopAsked())
    assert only(do.Finish, machine.feed(ev.StopAsked(at_once=True))).outcome is Outcome.STOPPED


def test_a_stop_that_comes_too_late_changes_no_outcome() -> None:
    machine = Machine().training()
    machine.all_return()
    machine.gone()
    assert machine.feed(ev.StopAsked(), ev.StopAsked(at_once=True)) == []
    assert machine.state.durable.outcome is Outcome.FINISHED


def test_a_stop_while_the_run_restores_or_waits_ends_it() -> None:
    restoring = Machine().training()
    restoring.commit(0)
    restoring.fail()
    restoring.gone()
    assert restoring.state.phase is Phase.RESTORING
    assert only(do.Finish, restoring.feed(ev.StopAsked())).outcome is Outcome.STOPPED
    waiting = Machine().training()
    for _ in range(2):
        waiting.fail()
        waiting.gone()
    assert waiting.state.phase is Phase.WAITING
    assert only(do.Finish, waiting.feed(ev.StopAsked())).outcome is Outcome.STOPPED


def test_a_stop_takes_the_place_of_a_retry_but_not_of_a_failed_run() -> None:
    retrying = Machine().training()
    retrying.fail()
    retrying.feed(ev.StopAsked())
    assert only(do.Finish, retrying.gone()).outcome is Outcome.STOPPED
    failed = Machine(max_failures=0).training()
    failed.fail()
    failed.feed(ev.StopAsked())
    assert only(do.Finish, failed.gone()).outcome is Outcome.FAILED


def test_a_storage_failure_after_a_stop_is_counted_neither_live_nor_by_a_replay() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    machine.all_return()
    machine.feed(ev.StopAsked(), ev.ShardFailed(1, 0, 0, "no space"))
    assert machine.state.durable.spent == machine.restart().state.durable.spent == {}
    assert only(do.Finish, machine.gone()).outcome is Outcome.STOPPED


def test_every_event_has_its_handler() -> None:
    assert set(step._HANDLERS) == set(ev.Event.__subclasses__())


def test_every_phase_can_be_reached_and_left() -> None:
    reached = set(phases.TRANSITIONS.values())
    left = {was for was, _ in phases.TRANSITIONS}
    assert reached == set(Phase) - {Phase.IDLE}
    assert left == set(Phase) - {Phase.ENDED}
