"""Where storage is remote: when a checkpoint is uploaded, what the next attempt starts from, what may be lost."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Outcome, Phase
from support.core.machine import Machine, every, only


def remote(**limits: object) -> Machine:
    return Machine(**{"num_workers": 1, "nodes_hold_files": True, **limits}).training()


def test_a_whole_checkpoint_is_gathered_uploaded_and_then_committed() -> None:
    machine = remote(num_workers=2)
    machine.stage(0, 0, 1)
    asked = machine.seal(0, 0, 1)
    assert only(do.Gather, asked).ranks == only(do.Upload, asked).ranks == (0, 1)
    assert every(do.Commit, machine.feed(ev.ShardUploaded(1, 0, 0))) == []
    assert only(do.Commit, machine.feed(ev.ShardUploaded(1, 1, 0))).id == "checkpoint_000001"


def test_at_most_two_uploads_run_at_once() -> None:
    machine = remote()
    machine.stage(0, 0)
    machine.stage(1, 0)
    machine.stage(2, 0)
    assert len(every(do.Upload, machine.seal(0, 0) + machine.seal(1, 0) + machine.seal(2, 0))) == 2
    assert only(do.Upload, machine.uploaded(1)).index == 2


def test_what_is_hashed_last_finds_a_place_among_the_uploads_that_wait_for_it() -> None:
    machine = remote()
    for index in range(3):
        machine.stage(index, 0)
    machine.seal(1, 0)
    machine.seal(2, 0)
    machine.uploaded(1)
    machine.uploaded(2)
    assert only(do.Upload, machine.seal(0, 0)).index == 0
    assert only(do.Commit, machine.uploaded(0)).index == 0


def test_no_name_is_used_twice_not_even_after_a_deletion() -> None:
    machine = remote(num_to_keep=1)
    machine.committed(only(do.Commit, machine.upload(0)))
    machine.stage(1, 0, name="other")
    machine.seal(1, 0)
    assert only(do.Delete, machine.committed(only(do.Commit, machine.uploaded(1)))).id == "checkpoint_000001"
    machine.stage(2, 0, name="checkpoint_000001")
    assert machine.state.pending[2].id == "checkpoint_000001-g1"


def test_a_name_that_ends_like_one_of_a_later_attempt_gets_its_own_attempt_behind_it() -> None:
    machine = remote()
    for index, name in enumerate(("best-g2", "best-g2-r1", "resnet-gpu", "best-r1", "7")):
        machine.stage(index, 0, name=name)
    ids = [pending.id for pending in machine.state.pending.values()]
    assert ids == ["best-g2-g1", "best-g2-r1-g1", "resnet-gpu", "best-r1", "7"]


def test_later_attempts_have_their_number_in_every_name() -> None:
    machine = remote()
    machine.fail()
    machine.gone()
    machine.stage(0, 0, name="best")
    machine.stage(1, 0)
    assert [pending.id for pending in machine.state.pending.values()] == ["best-g2", "checkpoint_000002-g2"]


def carried(*indices: int, **limits: object) -> Machine:
    """A machine that restores: its attempt is gone, and what it made whole is on its way to storage."""
    machine = remote(**limits)
    for index in indices:
        machine.stage(index, 0)
        machine.seal(index, 0)
    machine.fail()
    machine.gone()
    assert machine.state.phase is Phase.RESTORING
    return machine


def test_the_next_attempt_starts_from_what_the_nodes_have_and_does_not_wait_for_the_upload() -> None:
    machine = remote()
    machine.stage(0, 0)
    machine.seal(0, 0)
    machine.fail()
    assert only(do.Verify, machine.gone()).id == "checkpoint_000001"
    started = only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001")))
    assert (started.resume, started.base) == ("checkpoint_000001", 1)
    assert only(do.Commit, machine.uploaded(0, attempt_number=1)).id == "checkpoint_000001"


def test_what_the_nodes_lost_is_not_resumed_from() -> None:
    machine = carried(0, 1)
    asked = machine.feed(ev.StagedLost("checkpoint_000002", "the node is gone"))
    assert "checkpoint_000002" in only(do.Warn, asked).text
    assert only(do.Verify, asked).id == "checkpoint_000001"
    assert only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))).base == 1


def test_what_the_nodes_lost_when_all_of_it_was_in_storage_is_waited_for() -> None:
    machine = carried(0)
    commit = only(do.Commit, machine.uploaded(0))
    assert machine.feed(ev.StagedLost("checkpoint_000001", "the node is gone")) == []
    assert every(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))) == []
    assert only(do.Verify, machine.committed(commit)).id == "checkpoint_000001"
    assert only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))).base == 1


def test_when_the_one_that_is_waited_for_is_refused_the_run_goes_on_without_it() -> None:
    machine = carried(0)
    machine.uploaded(0)
    machine.feed(ev.StagedLost("checkpoint_000001", "the node is gone"))
    assert only(do.StartAttempt, machine.feed(ev.CommitFailed(1, 0, "refused"))).resume is None


def test_what_the_nodes_have_no_more_because_it_is_in_storage_is_verified_there() -> None:
    machine = carried(0)
    machine.committed(only(do.Commit, machine.uploaded(0)))
    asked = machine.feed(ev.StagedLost("checkpoint_000001", "the room was needed"))
    assert only(do.Verify, asked).id == "checkpoint_000001"


def test_a_commit_that_is_refused_while_the_run_restores_sends_it_to_the_next_older_one() -> None:
    machine = carried(0, 1)
    machine.committed(only(do.Commit, machine.uploaded(0)))
    machine.uploaded(1)
    asked = machine.feed(ev.CommitFailed(1, 1, "refused"))
    assert do.Delete("checkpoint_000002") in asked
    assert only(do.Verify, asked).id == "checkpoint_000001"
    assert every(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000002"))) == []
    assert only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))).base == 1


def test_a_run_that_waits_starts_from_nothing_that_was_not_verified() -> None:
    machine = remote(max_failures=-1)
    machine.fail()
    machine.gone()
    machine.ready()
    for index in range(2):
        machine.stage(index, 0)
        machine.seal(index, 0)
    machine.fail()
    machine.gone()
    machine.feed(ev.Verified("checkpoint_000002-g2"))
    assert machine.state.phase is Phase.WAITING
    assert only(do.Verify, machine.feed(ev.StagedLost("checkpoint_000002-g2", "gone"))).id == "checkpoint_000001-g2"
    assert [each.timer for each in every(do.SetTimer, machine.feed(ev.TimerFired(timers.BACKOFF)))] == [timers.BACKOFF]
    assert every(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001-g2"))) == []
    assert only(do.StartAttempt, machine.feed(ev.TimerFired(timers.BACKOFF))).resume == "checkpoint_000001-g2"


def test_a_commit_of_an_earlier_attempt_that_is_refused_is_a_failure_live_and_replayed() -> None:
    machine = carried(0)
    machine.feed(ev.Verified("checkpoint_000001"))
    machine.ready()
    machine.uploaded(0, attempt_number=1)
    asked = machine.feed(ev.CommitFailed(1, 0, "refused"))
    assert only(do.StopAttempt, asked).attempt_number == 2
    assert machine.state.durable.spent == machine.restart().state.durable.spent == {"failures": 1, "storage": 1}
    assert only(do.StartAttempt, machine.gone() + machine.feed(ev.TimerFired(timers.BACKOFF))).resume is None


def test_a_commit_that_found_storage_away_is_asked_for_again_without_another_upload() -> None:
    machine = remote()
    commit = only(do.Commit, machine.upload(0))
    assert machine.feed(ev.UploadFailed(1, 0, "away"))[0] == commit
    assert machine.state.durable.spent == {"storage": 1}


def test_an_upload_that_found_storage_away_begins_again() -> None:
    machine = remote()
    machine.stage(0, 0)
    upload = only(do.Upload, machine.seal(0, 0))
    assert machine.feed(ev.UploadFailed(1, 0, "away", (0,))) == [upload]


def test_only_the_part_that_storage_refused_is_uploaded_again() -> None:
    machine = remote(num_workers=2)
    machine.stage(0, 0, 1)
    upload = only(do.Upload, machine.seal(0, 0, 1))
    assert upload.ranks == (0, 1)
    assert only(do.Upload, machine.feed(ev.UploadFailed(1, 0, "away", (1,)))).ranks == (1,)
    assert only(do.Upload, machine.feed(ev.UploadFailed(1, 0, "away", (0,)))).ranks == (0,)
    assert machine.feed(ev.ShardUploaded(1, 0, 0)) == []
    only(do.Commit, machine.feed(ev.ShardUploaded(1, 1, 0)))
    assert machine.feed(ev.UploadFailed(1, 0, "away", (0,))) == [], "an answer to an earlier order: no second commit"


def test_a_stop_while_the_run_restores_waits_for_what_is_on_its_way() -> None:
    machine = carried(0)
    assert machine.feed(ev.StopAsked()) == []
    assert every(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))) == []
    asked = machine.committed(only(do.Commit, machine.uploaded(0)))
    assert only(do.Finish, asked).outcome is Outcome.STOPPED


def test_what_is_lost_before_all_ranks_brought_it_is_never_committed_in_part() -> None:
    machine = remote(num_workers=2)
    machine.stage(0, 0)
    machine.feed(ev.StagedLost("checkpoint_000001", "the node is gone"))
    machine.stage(0, 1)
    assert machine.seal(0, 1) == [do.Discard(1, 0)]


def test_when_storage_stays_away_the_run_fails_and_nothing_staged_is_given_up() -> None:
    machine = remote(num_workers=2, max_failures=0)
    machine.stage(0, 0, 1)
    machine.seal(0, 0, 1)
    machine.stage(1, 0)
    assert only(do.StopAttempt, machine.feed(ev.UploadFailed(1, 0, "away", (0,)))).attempt_number == 1
    machine.stage(1, 1)
    machine.stage(2, 0)
    asked = machine.gone()
    assert every(do.Finish, asked) == []  # its nodes are still hashing
    assert [discard.index for discard in every(do.Discard, asked)] == [2]
    asked = machine.seal(1, 0, 1)
    assert only(do.Gather, asked).ranks == (0, 1)
    assert every(do.Upload, asked) == every(do.Discard, asked) == []
    assert only(do.Finish, asked).outcome is Outcome.FAILED


def test_a_run_that_fails_for_another_cause_while_storage_is_away_names_that_cause() -> None:
    machine = remote(max_failures=0)
    machine.stage(0, 0)
    machine.seal(0, 0)
    machine.fail()
    machine.feed(ev.UploadFailed(1, 0, "away", (0,)))
    assert only(do.Finish, machine.gone()).reason == "rank 0 was killed by SIGKILL (signal 9)"


def test_a_run_that_restores_while_storage_stays_away_ends() -> None:
    machine = carried(0, max_failures=1)
    machine.feed(ev.UploadFailed(1, 0, "away", (0,)))
    asked = machine.feed(ev.UploadFailed(1, 0, "away", (0,)))
    assert only(do.Finish, asked).outcome is Outcome.FAILED
    assert every(do.StartAttempt, asked) == every(do.Verify, asked) == []


def test_what_the_attempt_resumed_from_is_not_given_up_under_it() -> None:
    machine = carried(0, 1, 2, num_to_keep=1)
    machine.feed(ev.Verified("checkpoint_000003"))
    machine.ready()
    for index in range(2):
        machine.stage(index, 0)
        assert every(do.Discard, machine.seal(index, 0)) == ([] if index == 0 else [do.Discard(2, 0)])
    assert "checkpoint_000003" in [pending.id for pending in machine.state.carried]


def test_what_newer_ones_supersede_before_its_upload_began_is_given_up() -> None:
    machine = remote(num_to_keep=1)
    for index in range(3):
        machine.stage(index, 0)
        machine.seal(index, 0)
    machine.stage(3, 0)
    assert machine.seal(3, 0)[-1] == do.Discard(1, 2)
    assert [pending.index for pending in machine.state.unsaved] == [0, 1, 3]


def test_a_late_word_of_an_attempt_that_is_gone_does_not_harm_what_it_left() -> None:
    machine = carried(0)
    machine.feed(ev.Verified("checkpoint_000001"))
    assert machine.feed(ev.ShardStaged(1, 0, 0), ev.ShardSealed(1, 0, 0)) == []


def test_the_commit_of_an_earlier_attempt_leaves_the_timers_of_the_present_one_alone() -> None:
    machine = carried(0)
    machine.feed(ev.Verified("checkpoint_000001"))
    machine.ready()
    assert every(do.CancelTimer, machine.uploaded(0, attempt_number=1)) == []


def test_a_run_that_lost_its_last_checkpoint_has_not_finished() -> None:
    machine = remote()
    machine.stage(0, 0)
    machine.seal(0, 0)
    machine.all_return()
    machine.gone()
    asked = machine.feed(ev.StagedLost("checkpoint_000001", "the node is gone"))
    assert only(do.StartAttempt, asked).resume is None
    assert machine.state.durable.spent == machine.restart().state.durable.spent == {"storage": 1}


def test_nor_has_one_that_lost_it_before_its_workers_returned() -> None:
    machine = remote()
    machine.stage(0, 0)
    machine.seal(0, 0)
    machine.feed(ev.StagedLost("checkpoint_000001", "the node is gone"))
    assert machine.state.phase is Phase.RUNNING
    machine.all_return()
    assert only(do.StartAttempt, machine.gone()).attempt_number == 2
    machine.ready()
    machine.all_return()
    assert only(do.Finish, machine.gone()).outcome is Outcome.FINISHED


def test_a_run_that_lost_an_older_checkpoint_finishes_with_the_last_one() -> None:
    machine = remote()
    for index in range(2):
        machine.stage(index, 0)
        machine.seal(index, 0)
    machine.all_return()
    machine.gone()
    machine.feed(ev.StagedLost("checkpoint_000001", "the node is gone"))
    asked = machine.committed(only(do.Commit, machine.uploaded(1)))
    assert only(do.Finish, asked).outcome is Outcome.FINISHED


def test_to_wait_until_a_checkpoint_is_durable_is_no_hang() -> None:
    machine = remote(hang_timeout_s=10.0)
    machine.stage(0, 0, urgent=True)
    machine.seal(0, 0)
    machine.now = 25.0
    assert machine.feed(ev.TimerFired(timers.HANG)) == [do.SetTimer(timers.HANG, 10.0)]
    machine.committed(only(do.Commit, machine.uploaded(0)))
    machine.now = 34.0
    assert machine.feed(ev.TimerFired(timers.HANG)) == [do.SetTimer(timers.HANG, 1.0)]
    machine.now = 35.0
    assert only(do.StopAttempt, machine.feed(ev.TimerFired(timers.HANG))).attempt_number == 1


def test_one_that_hangs_while_another_waits_for_storage_is_found() -> None:
    machine = remote(num_workers=2, hang_timeout_s=10.0)
    machine.stage(0, 0, urgent=True)
    machine.now = 10.0
    machine.feed(ev.TimerFired(timers.HANG))
    assert machine.state.failure is not None
    assert machine.state.failure.rank == 1
