"""What a failure costs, what follows it, and what the next driver remembers of it."""

from __future__ import annotations

import pytest

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Outcome, Phase, RunSpec, Verdict
from support.core.machine import Machine, every, only


def test_the_first_failure_of_an_attempt_is_counted_and_ends_the_attempt() -> None:
    machine = Machine().training()
    asked = machine.fail(rank=1)
    assert only(do.StopAttempt, asked) == do.StopAttempt(1, graceful=False)
    assert machine.state.durable.spent == {"failures": 1}
    assert machine.state.failure is not None
    assert machine.state.failure.rank == 1
    assert machine.state.phase is Phase.STOPPING


def test_what_follows_from_the_first_failure_is_not_counted() -> None:
    machine = Machine().training()
    machine.fail(rank=1)
    machine.fail(rank=0)
    machine.feed(ev.ShardFailed(1, 0, 0, "no space"), ev.CommitFailed(1, 1, "no space"))
    assert machine.state.durable.spent == {"failures": 1}
    assert machine.state.failure is not None
    assert machine.state.failure.rank == 1


def test_the_next_attempt_starts_only_when_the_old_one_is_gone() -> None:
    machine = Machine().training()
    assert every(do.StartAttempt, machine.fail()) == []
    assert only(do.StartAttempt, machine.gone()).attempt_number == 2


def test_the_next_attempt_starts_from_what_the_old_one_completed_before_it_died() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    machine.stage(1, 0)
    machine.fail(rank=1)
    assert do.Discard(1, 1) in machine.gone()
    assert machine.state.phase is Phase.SETTLING
    asked = machine.committed(only(do.Commit, machine.seal(0, 0, 1)))
    assert only(do.Verify, asked).id == "checkpoint_000001"
    assert only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))).base == 1


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_n_failures_allow_exactly_n_retries(limit: int) -> None:
    machine = Machine(max_failures=limit).training()
    for _ in range(limit):
        machine.fail()
        machine.gone()
        machine.feed(ev.TimerFired(timers.BACKOFF))
        assert machine.state.phase is Phase.STARTING
    machine.fail(rank=1)
    finish = only(do.Finish, machine.gone())
    assert finish == do.Finish(Outcome.FAILED, "rank 1 was killed by SIGKILL (signal 9)")
    assert machine.attempt_number == limit + 1


def test_a_limit_of_minus_one_is_none() -> None:
    machine = Machine(max_failures=-1).training()
    for _ in range(50):
        machine.fail()
        machine.gone()
        machine.feed(ev.TimerFired(timers.BACKOFF))
    assert machine.state.phase is Phase.STARTING
    assert machine.state.durable.spent == {"failures": 50}


def test_storage_failures_have_a_budget_of_their_own() -> None:
    machine = Machine(max_failures=1).training()
    machine.fail()
    machine.gone()
    machine.feed(ev.ShardFailed(2, 0, 0, "no space"))
    assert machine.state.durable.spent == {"failures": 1, "storage": 1}
    assert machine.state.verdict is Verdict.RETRY


def test_a_second_failure_without_progress_waits_and_each_one_after_it_waits_longer() -> None:
    machine = Machine(max_failures=-1, backoff_s=1.0, max_backoff_s=3.0).training()
    waits = []
    for _ in range(5):
        machine.fail()
        waits += [each.after_s for each in every(do.SetTimer, machine.gone()) if each.timer == timers.BACKOFF]
        machine.feed(ev.TimerFired(timers.BACKOFF))
    assert waits == [1.0, 2.0, 3.0, 3.0]


def test_progress_ends_the_waiting() -> None:
    machine = Machine(num_workers=1, max_failures=-1).training()
    for _ in range(3):
        machine.fail()
        machine.gone()
        machine.feed(ev.TimerFired(timers.BACKOFF))
    machine.ready()
    machine.commit(0)
    machine.fail()
    machine.gone()
    assert only(do.StartAttempt, machine.feed(ev.Verified("checkpoint_000001"))).base == 1


def test_failures_are_remembered_by_the_next_driver_and_its_own_start_costs_none() -> None:
    before = Machine(max_failures=1).training()
    before.fail()
    before.gone()
    machine = before.restart()
    machine.start(epoch=2)
    assert machine.state.durable.spent == {"failures": 1}
    machine.fail()
    assert only(do.Finish, machine.gone()).outcome is Outcome.FAILED


def test_a_driver_killed_before_it_said_that_the_run_failed_gives_no_retry_more() -> None:
    before = Machine(max_failures=0).training()
    before.fail()
    machine = before.restart()
    asked = machine.start(epoch=2)
    assert every(do.StartAttempt, asked) == []
    assert only(do.Finish, asked).outcome is Outcome.FAILED


def test_that_verdict_outlives_a_second_kill_as_well() -> None:
    before = Machine(max_failures=0).training()
    before.fail()
    before.journal.append(ev.DriverStarted(2, before.spec))
    machine = before.restart()
    assert only(do.Finish, machine.start(epoch=3)).outcome is Outcome.FAILED


def test_a_higher_limit_lets_the_run_go_on_after_all() -> None:
    before = Machine(max_failures=0).training()
    before.fail()
    machine = before.restart()
    machine.spec = RunSpec(num_workers=2, max_failures=1)
    assert only(do.StartAttempt, machine.start(epoch=2)).attempt_number == 2


@pytest.mark.parametrize(("ending", "spent"), [("stopped", {"failures": 1}), ("failed", {})])
def test_only_a_run_that_came_to_its_verdict_gets_a_new_budget(ending: str, spent: dict[str, int]) -> None:
    before = Machine(max_failures=1).training()
    before.fail()
    before.gone()
    if ending == "stopped":
        before.feed(ev.StopAsked())
    else:
        before.fail()
    before.gone()
    assert before.state.durable.outcome is Outcome(ending)
    machine = before.restart()
    machine.start(epoch=2)
    assert machine.state.durable.spent == spent


def test_when_one_part_cannot_be_stored_the_other_parts_are_never_committed_alone() -> None:
    machine = Machine().training()
    machine.stage(0, 1)
    machine.feed(ev.ShardFailed(1, 1, 0, "no space"))
    machine.stage(0, 0)
    assert machine.seal(0, 0) == [do.Discard(1, 0)]
    assert only(do.StartAttempt, machine.gone()).resume is None


def test_after_a_failed_checkpoint_the_next_whole_one_is_committed() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    machine.stage(1, 0, 1)
    machine.seal(1, 0, 1)
    commit = only(do.Commit, machine.feed(ev.ShardFailed(1, 0, 0, "no space")))
    assert commit.index == 1


def test_a_failed_commit_leaves_no_manifest_under_its_name() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    machine.seal(0, 0, 1)
    asked = machine.feed(ev.CommitFailed(1, 0, "no space"))
    assert only(do.Delete, asked).id == "checkpoint_000001"
    assert do.Discard(1, 0) in asked


def test_a_last_checkpoint_that_cannot_be_stored_is_a_failure_even_after_every_rank_returned() -> None:
    machine = Machine().training()
    machine.stage(0, 0, 1)
    machine.all_return()
    machine.gone()
    assert machine.state.phase is Phase.SETTLING
    asked = machine.feed(ev.ShardFailed(1, 0, 0, "no space"))
    assert machine.state.durable.spent == {"storage": 1}
    assert only(do.StartAttempt, asked).attempt_number == 2
