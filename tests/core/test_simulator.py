"""Fifty thousand fault schedules hold every invariant; and a broken machine does not get past them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from holdfast.core import checkpointing, run, scaling
from holdfast.core import commands as do
from holdfast.core.failures import FailureKind
from holdfast.core.state import Outcome, Pending, RankStatus, RunState, Verdict
from holdfast.testing import simulator
from holdfast.testing.schedule import KINDS, OCCASIONS

SCHEDULES = 50_000
SEEDS_FOR_A_MUTANT = 5_000


@pytest.mark.timeout(1200)
def test_every_invariant_holds_in_every_schedule() -> None:
    total = simulator.simulate_many(0, SCHEDULES, processes=2)
    assert not total.broken, simulator.explain(total.broken[0].seed)
    assert total.schedules == SCHEDULES
    rare = {kind for kind in (*KINDS, *OCCASIONS) if total.faults.get(kind, 0) < 100}
    assert not rare, f"hardly ever tried: {rare}"
    assert set(total.outcomes) == {outcome.value for outcome in Outcome}


def test_a_seed_plays_the_same_run_every_time() -> None:
    for seed in range(20):
        first: list[str] = []
        second: list[str] = []
        assert simulator.simulate(seed, first) == simulator.simulate(seed, second)
        assert first == second


def counts_secondary_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, rank: int, evidence: Any) -> str:
        lives = turn.state.group_lives
        text = good(turn, rank, evidence)
        if not lives:
            turn.change(spent={**turn.state.spent, "failures": turn.state.spent.get("failures", 0) + 1})
        return text

    good = run._fail
    monkeypatch.setattr(run, "_fail", broken)


def commits_before_all_ranks_have_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "complete", lambda _self, _index: True)


def commits_before_the_files_are_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        pending = {i: structs.replace(p, sealed=p.staged) for i, p in turn.state.pending.items()}
        turn.change(pending=pending)
        good(turn)

    good = checkpointing.advance
    monkeypatch.setattr(checkpointing, "advance", broken)


def forgets_what_was_spent_when_a_driver_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        turn.change(spent={})
        return good(turn, event)

    good = run._driver_started
    monkeypatch.setitem(run._HANDLERS, run.ev.DriverStarted, broken)


def deletes_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(checkpoints: Any, spec: Any, pinned: Any) -> list[str]:
        gone = good(checkpoints, spec, pinned)
        return [max(checkpoints, key=lambda c: c.report).id] if gone else gone

    good = checkpointing.superseded
    monkeypatch.setattr(checkpointing, "superseded", broken)


def deletes_what_the_group_resumed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    good = checkpointing.superseded
    monkeypatch.setattr(checkpointing, "superseded", lambda *situation, **_: good(*situation, pinned=()))


def starts_without_verifying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_restore", run._proceed)


def retries_before_the_group_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.verdict is Verdict.RETRY and turn.state.phase is run.Phase.STOPPING:
            run._move(turn, "group gone")
            turn.change(pending={})
            run._settle(turn)
        return reason

    good = run._worker_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.WorkerFailed, broken)


def retries_once_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any, kind: Any) -> tuple[str, int]:
        budget, limit = good(spec, kind)
        return budget, limit + 1 if limit >= 0 else limit

    good = run.budget_of
    monkeypatch.setattr(run, "budget_of", broken)


def goes_on_before_the_last_checkpoint_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is run.Phase.SETTLING:
            turn.change(pending={})
        good(turn)

    good = run._settle
    monkeypatch.setattr(run, "_settle", broken)


def listens_to_groups_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.Turn, "is_current", lambda self, _generation: len(self.state.ranks) == 4)


def never_looks_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_look_for_a_hang", lambda _turn: None)


def leaves_the_manifest_of_a_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.Delete)]
        return reason

    good = run._storage_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.CommitFailed, broken)


def commits_before_the_files_are_in_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pending, "is_uploaded", property(lambda self: self.uploading))


def uploads_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "_UPLOADS_AT_ONCE", 9)


def lets_uploads_keep_the_place_of_one_that_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        with monkeypatch.context() as inside:
            inside.setattr(Pending, "is_uploaded", False)
            good(turn)

    good = checkpointing._upload
    monkeypatch.setattr(checkpointing, "_upload", broken)


def uploads_before_the_sync_period_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        spec = turn.state.spec
        turn.change(spec=structs.replace(spec, sync_period_s=0.0))
        good(turn)
        turn.change(spec=spec)

    good = checkpointing._upload
    monkeypatch.setattr(checkpointing, "_upload", broken)


def uploads_nothing_when_the_sync_period_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "sync", lambda _turn: None)


def uploads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "upload_again", lambda _turn, _event: None)


def commits_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = property(lambda self: (*reversed(self.pending.values()), *reversed(self.carried)))
    monkeypatch.setattr(RunState, "unsaved", backwards)


def resumes_from_nothing_that_is_only_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "offer", RunState.newest)


def drops_what_earlier_groups_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "carry", lambda turn: turn.change(pending={}, carried=()))


def uses_names_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any, name: str | None, report: int) -> str:
        spec = structs.replace(state.spec, remote=False)
        return good(structs.replace(state, spec=spec, names=frozenset()), name, report)

    good = checkpointing._free_id
    monkeypatch.setattr(checkpointing, "_free_id", broken)


def gives_up_one_that_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        spec = turn.state.spec
        turn.change(spec=structs.replace(spec, scored=False))
        good(turn)
        turn.change(spec=spec)

    good = checkpointing._skip_superseded
    monkeypatch.setattr(checkpointing, "_skip_superseded", broken)


def gives_up_what_the_group_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        resume = turn.state.resume
        turn.change(resume=None)
        good(turn)
        turn.change(resume=resume)

    good = checkpointing._skip_superseded
    monkeypatch.setattr(checkpointing, "_skip_superseded", broken)


def gives_up_what_is_staged_when_storage_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.cut_off:
            turn.do(*(do.Discard(p.generation, p.index) for p in turn.state.unsaved))
            turn.change(pending={}, carried=())
        return reason

    good = run._upload_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.UploadFailed, broken)


def gives_up_what_is_in_storage_and_lost_on_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        for pending in turn.state.unsaved:
            if pending.id == event.id:
                turn.set_pending(structs.replace(pending, uploaded=frozenset()))
        return good(turn, event)

    good = checkpointing.staged_lost
    monkeypatch.setattr(checkpointing, "staged_lost", broken)


def obeys_late_words_of_groups_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if event.generation < turn.state.generation:
            turn.do(do.Discard(event.generation, event.index))
        return reason

    good = checkpointing.shard_staged
    monkeypatch.setitem(run._HANDLERS, run.ev.ShardStaged, broken)


def never_looks_again_at_what_it_resumes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_reconsider", lambda _turn, _was: None)


def starts_from_what_was_verified_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.offer is not None:
            turn.change(verified=turn.state.offer.id)
        good(turn)

    good = run._start
    monkeypatch.setattr(run, "_start", broken)


def stops_before_all_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is run.Phase.RESTORING and turn.state.verdict is Verdict.STOP:
            turn.change(carried=())
        good(turn)

    good = run._settle
    monkeypatch.setattr(run, "_settle", broken)


def finishes_without_its_last_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.change(missed=None)
        return reason

    good = checkpointing.staged_lost
    monkeypatch.setattr(checkpointing, "staged_lost", broken)


def forgets_that_storage_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        spent = turn.state.spent
        reason = good(turn, event)
        turn.change(spent=spent)
        return reason

    good = run._upload_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.UploadFailed, broken)


def takes_waiting_for_storage_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> tuple[int, float]:
        pending = turn.state.pending
        turn.change(pending={})
        found = good(turn)
        turn.change(pending=pending)
        return found

    good = run._slowest
    monkeypatch.setattr(run, "_slowest", broken)


def lets_workers_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.Stall) or c.on]
        return reason

    good = checkpointing.storage_lags
    monkeypatch.setitem(run._HANDLERS, run.ev.StorageLags, broken)


def starts_with_fewer_than_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    def room(state: RunState) -> int | None:
        most = state.spec.num_workers
        return most if state.capacity is None else min(most, state.capacity) or None

    monkeypatch.setattr(RunState, "world_size", property(room))


def starts_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "world_size", property(lambda self: self.spec.num_workers))


def never_resizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "consider_resize", lambda _turn: None)


def does_not_go_on_when_room_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        turn.change(capacity=event.slots)
        scaling.consider_resize(turn)
        return "there is room"

    monkeypatch.setitem(run._HANDLERS, run.ev.Capacity, broken)


def hands_over_before_all_ranks_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        with monkeypatch.context() as inside:
            inside.setattr(RunState, "is_whole", lambda _self, _pending: True)
            good(turn)

    good = scaling.hand_over
    monkeypatch.setattr(scaling, "hand_over", broken)


def hands_over_at_an_earlier_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        return good(turn, structs.replace(event, index=0))

    good = scaling.handover_set
    monkeypatch.setitem(run._HANDLERS, run.ev.HandoverSet, broken)


def keeps_to_a_point_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(turn: Any, handover: Any, deadline_s: Any) -> None:
        known = turn.state.handover
        good_ask(turn, structs.replace(handover, index=known.index if known is not None else None), deadline_s)

    def handover_set(turn: Any, event: Any) -> str:
        known = turn.state.handover
        if known is not None and known.index is not None:
            event = structs.replace(event, index=min(event.index, known.index))
        return good_set(turn, event)

    good_ask, good_set = scaling.ask, scaling.handover_set
    monkeypatch.setattr(scaling, "ask", ask)
    monkeypatch.setitem(run._HANDLERS, run.ev.HandoverSet, handover_set)


def never_minds_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    good = scaling.ask
    monkeypatch.setattr(scaling, "ask", lambda turn, handover, _deadline_s: good(turn, handover, None))


def takes_preemptions_for_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any, kind: Any) -> tuple[str, int]:
        return good(spec, FailureKind.CRASH if kind is FailureKind.PREEMPTED else kind)

    good = run.budget_of
    monkeypatch.setattr(run, "budget_of", broken)


def hands_over_to_preemption_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        spent = turn.state.spent
        reason = good(turn, event)
        turn.change(spent=spent)
        return reason

    good = run._handed_over
    monkeypatch.setitem(run._HANDLERS, run.ev.HandedOver, broken)


def counts_what_fails_after_a_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.phase is run.Phase.STOPPING:
            turn.change(verdict=Verdict.FINISH)
        return reason

    good = run._handed_over
    monkeypatch.setitem(run._HANDLERS, run.ev.HandedOver, broken)


def takes_who_returned_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        if turn.is_current(event.generation):
            turn.set_rank(event.rank, status=RankStatus.DEAD)
        return good(turn, event)

    good = run._worker_failed
    monkeypatch.setitem(run._HANDLERS, run.ev.WorkerFailed, broken)


def forgets_that_an_error_came_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_is_final", run._is_spent)


def lets_an_error_come_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_repeats", lambda state: 0 < state.spec.max_same_errors < state.same_error[2] - 1)


def never_gives_a_node_another_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.SetTimer) or not c.name.startswith("rest:")]
        return reason

    good = run._driver_started
    monkeypatch.setitem(run._HANDLERS, run.ev.DriverStarted, broken)


def forgets_which_nodes_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        turn.change(resting=frozenset(), node_failures={})
        return good(turn, event)

    good = run._driver_started
    monkeypatch.setitem(run._HANDLERS, run.ev.DriverStarted, broken)


def takes_a_slow_start_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        suspect = turn.state.suspect
        reason = good(turn, event)
        turn.change(suspect=suspect)
        return reason

    good = run._worker_ready
    monkeypatch.setitem(run._HANDLERS, run.ev.WorkerReady, broken)


def looks_for_a_hang_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        limit, (_, idle) = run._hang_limit(turn.state), run._slowest(turn)
        good(turn)
        if not limit:
            turn.do(do.SetTimer("hang", run._LEAST_LEARNT_S - idle))

    good = run._look_for_a_hang
    monkeypatch.setattr(run, "_look_for_a_hang", broken)


def waits_for_stacks_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, rank: int) -> None:
        good(turn, rank)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.SetTimer) or c.name != "stacks"]

    good = run._suspect
    monkeypatch.setattr(run, "_suspect", broken)


def finishes_though_it_was_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is run.Phase.RUNNING and all(r.status is RankStatus.RETURNED for r in turn.state.ranks):
            turn.change(verdict=Verdict.FINISH)
            run._end_group(turn, "all returned", graceful=True)

    monkeypatch.setattr(run, "_leave_if_all_returned", broken)


def goes_back_to_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "newest", property(lambda _self: None))


MUTANTS = [
    counts_secondary_failures,
    commits_before_all_ranks_have_reported,
    commits_before_the_files_are_on_disk,
    forgets_what_was_spent_when_a_driver_starts,
    deletes_the_newest,
    deletes_what_the_group_resumed_from,
    starts_without_verifying,
    retries_before_the_group_is_gone,
    retries_once_too_often,
    goes_on_before_the_last_checkpoint_is_durable,
    listens_to_groups_that_are_gone,
    never_looks_for_a_hang,
    leaves_the_manifest_of_a_failed_commit,
    goes_back_to_the_beginning,
    commits_before_the_files_are_in_storage,
    uploads_all_at_once,
    lets_uploads_keep_the_place_of_one_that_they_wait_for,
    uploads_before_the_sync_period_is_over,
    uploads_nothing_when_the_sync_period_is_over,
    uploads_once,
    commits_the_newest_first,
    resumes_from_nothing_that_is_only_staged,
    drops_what_earlier_groups_made,
    uses_names_again,
    gives_up_one_that_is_to_be_kept,
    gives_up_what_the_group_reads,
    gives_up_what_is_staged_when_storage_stays_away,
    gives_up_what_is_in_storage_and_lost_on_its_nodes,
    obeys_late_words_of_groups_that_are_gone,
    never_looks_again_at_what_it_resumes_from,
    starts_from_what_was_verified_no_more,
    stops_before_all_is_durable,
    finishes_without_its_last_checkpoint,
    forgets_that_storage_was_away,
    takes_waiting_for_storage_for_a_hang,
    lets_workers_wait_for_ever,
    starts_with_fewer_than_the_least,
    starts_more_than_there_is_room_for,
    never_resizes,
    does_not_go_on_when_room_comes,
    hands_over_before_all_ranks_are_there,
    hands_over_at_an_earlier_checkpoint,
    keeps_to_a_point_that_was_given_up,
    never_minds_a_deadline,
    takes_preemptions_for_failures,
    hands_over_to_preemption_for_nothing,
    counts_what_fails_after_a_hand_over,
    takes_who_returned_for_dead,
    forgets_that_an_error_came_too_often,
    lets_an_error_come_once_more,
    never_gives_a_node_another_chance,
    forgets_which_nodes_rest,
    takes_a_slow_start_for_a_hang,
    looks_for_a_hang_all_the_time,
    waits_for_stacks_for_ever,
    finishes_though_it_was_asked_to_stop,
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_broken_machine_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert simulator.simulate_range(0, SEEDS_FOR_A_MUTANT).broken, f"{SEEDS_FOR_A_MUTANT} schedules did not notice"


def test_a_broken_seed_is_told_with_its_last_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deletes_the_newest(monkeypatch)
    seed = simulator.simulate_range(0, SEEDS_FOR_A_MUTANT).broken[0].seed
    assert simulator.main(["--seed", str(seed), "--trace"]) == 1
    told = capsys.readouterr().out
    assert "GroupStarted(" in told
    assert f"seed {seed}: BROKEN 2 " in told
