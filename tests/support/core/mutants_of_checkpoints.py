"""Mistakes that somebody could make in what becomes of checkpoints. The simulator must notice every one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from holdfast.core.run import checkpointing, ending, failing, hanging, salvage, starting, step
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import Pending, Phase, RunState, Verdict
from holdfast.driver import late_shards
from holdfast.runs import past


@contextmanager
def altered(turn: Any, **fields: Any) -> Iterator[None]:
    """What is durable is taken for something else for a while, whatever the event."""
    good = turn.state.durable
    turn.change(durable=structs.replace(good, **fields))
    yield
    turn.change(durable=good)


def commits_before_all_ranks_have_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "complete", lambda _self, _index: True)


def commits_before_the_files_are_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        pending = {i: structs.replace(p, sealed=p.staged) for i, p in turn.state.pending.items()}
        turn.change_attempt(pending=pending)
        good(turn)

    good = checkpointing.advance
    monkeypatch.setattr(checkpointing, "advance", broken)


def deletes_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(checkpoints: Any, spec: Any, pinned: Any) -> list[str]:
        gone = good(checkpoints, spec, pinned)
        return [max(checkpoints, key=lambda c: c.report).id] if gone else gone

    good = checkpointing.superseded
    monkeypatch.setattr(checkpointing, "superseded", broken)


def deletes_what_the_attempt_resumed_from(monkeypatch: pytest.MonkeyPatch) -> None:
    good = checkpointing.superseded
    monkeypatch.setattr(checkpointing, "superseded", lambda *situation, **_: good(*situation, pinned=()))


def starts_without_verifying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "restore", starting._proceed)


def goes_on_before_the_last_checkpoint_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is Phase.SETTLING:
            turn.change_attempt(pending={})
        good(turn)

    good = ending.settle
    monkeypatch.setattr(ending, "settle", broken)


def leaves_the_manifest_of_a_failed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.Delete)]
        return reason

    good = failing.storage_failed
    monkeypatch.setitem(step._HANDLERS, ev.CommitFailed, broken)


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
        with altered(turn, spec=structs.replace(turn.state.spec, sync_period_s=0.0)):
            good(turn)

    good = checkpointing._upload
    monkeypatch.setattr(checkpointing, "_upload", broken)


def uploads_nothing_when_the_sync_period_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "sync", lambda _turn: None)


def uploads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "upload_again", lambda _turn, _event: None)


def uploads_all_parts_again_when_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> None:
        pending = turn.find_pending(event.attempt_number, event.index)
        if pending is not None and event.ranks:
            turn.set_pending(structs.replace(pending, refused=pending.staged))
        else:
            good(turn, event)

    good = checkpointing.upload_again
    monkeypatch.setattr(checkpointing, "upload_again", broken)


def commits_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = property(lambda self: (*reversed(self.pending.values()), *reversed(self.carried)))
    monkeypatch.setattr(RunState, "unsaved", backwards)


def resumes_from_nothing_that_is_only_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "offer", RunState.newest)


def drops_what_earlier_attempts_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(turn: Any) -> None:
        turn.change(carried=())
        turn.change_attempt(pending={})

    monkeypatch.setattr(checkpointing, "carry", drop)


def uses_names_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(durable: Any, _names: Any, name: str | None, report: int) -> str:
        spec = structs.replace(durable.spec, nodes_hold_files=False)
        return good(structs.replace(durable, spec=spec), (), name, report)

    good = checkpointing.free_id
    monkeypatch.setattr(checkpointing, "free_id", broken)


def gives_up_one_that_is_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        with altered(turn, spec=structs.replace(turn.state.spec, scored=False)):
            good(turn)

    good = checkpointing._skip_superseded
    monkeypatch.setattr(checkpointing, "_skip_superseded", broken)


def gives_up_what_is_staged_when_storage_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.durable.cut_off:
            turn.do(*(do.Discard(p.attempt_number, p.index) for p in turn.state.unsaved))
            turn.change(carried=())
            turn.change_attempt(pending={})
        return reason

    good = failing.upload_failed
    monkeypatch.setitem(step._HANDLERS, ev.UploadFailed, broken)


def gives_up_what_is_in_storage_and_lost_on_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        for pending in turn.state.unsaved:
            if pending.id == event.id:
                turn.set_pending(structs.replace(pending, uploaded=frozenset()))
        return good(turn, event)

    good = checkpointing.staged_lost
    monkeypatch.setattr(checkpointing, "staged_lost", broken)


def obeys_late_words_of_attempts_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if event.attempt_number < turn.state.attempt_number:
            turn.do(do.Discard(event.attempt_number, event.index))
        return reason

    good = checkpointing.shard_staged
    monkeypatch.setitem(step._HANDLERS, ev.ShardStaged, broken)


def never_looks_again_at_what_it_resumes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "reconsider", lambda _turn, _was: None)


def starts_from_what_was_verified_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.offer is not None:
            turn.change(verified=turn.state.offer.id)
        good(turn)

    good = starting.start
    monkeypatch.setattr(starting, "start", broken)


def stops_before_all_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is Phase.RESTORING and turn.state.verdict is Verdict.STOP:
            turn.change(carried=())
        good(turn)

    good = ending.settle
    monkeypatch.setattr(ending, "settle", broken)


def finishes_without_its_last_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.change_attempt(missed=None)
        return reason

    good = checkpointing.staged_lost
    monkeypatch.setattr(checkpointing, "staged_lost", broken)


def forgets_that_storage_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        spent = turn.state.durable.spent
        reason = good(turn, event)
        turn.record(spent=spent)
        return reason

    good = failing.upload_failed
    monkeypatch.setitem(step._HANDLERS, ev.UploadFailed, broken)


def takes_waiting_for_storage_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> tuple[int, float]:
        pending = turn.state.pending
        turn.change_attempt(pending={})
        found = good(turn)
        turn.change_attempt(pending=pending)
        return found

    good = hanging._slowest
    monkeypatch.setattr(hanging, "_slowest", broken)


def lets_workers_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.Stall) or c.on]
        return reason

    good = checkpointing.storage_lags
    monkeypatch.setitem(step._HANDLERS, ev.StorageLags, broken)


def goes_back_to_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "newest", property(lambda _self: None))


def _committable(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    """On disk, and on nodes with storage that is remote."""
    monkeypatch.setattr(salvage, "committable", broken)
    monkeypatch.setattr(late_shards, "committable", broken)


def takes_up_nothing_that_a_driver_did_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    _committable(monkeypatch, lambda *_: [])


def takes_up_what_not_all_ranks_have_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any, logs: Any, *others: Any) -> Any:
        return good(state, [structs.replace(log, returned=True) for log in logs], *others)

    good = salvage.committable
    _committable(monkeypatch, broken)


def takes_up_files_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any, logs: Any, *others: Any) -> Any:
        return good(state, [structs.replace(log, lost=frozenset()) for log in logs], *others)

    good = salvage.committable
    _committable(monkeypatch, broken)


def takes_up_the_files_of_some_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*situation: Any) -> Any:
        return [structs.replace(command, ranks=command.ranks[:1]) for command in good(*situation)]

    good = salvage.committable
    _committable(monkeypatch, broken)


def gives_what_it_takes_up_a_name_that_storage_has(monkeypatch: pytest.MonkeyPatch) -> None:
    good = salvage.committable
    _committable(monkeypatch, lambda state, logs, given_up, _stored: good(state, logs, given_up, ()))


def forgets_what_earlier_attempts_left_to_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "valid_until", lambda _before, event: {event.attempt_number: math.inf})


def adopts_what_the_run_has_not_built_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "valid_until", lambda before, event: {**before, event.attempt_number: math.inf})


MUTANTS = [
    commits_before_all_ranks_have_reported,
    commits_before_the_files_are_on_disk,
    deletes_the_newest,
    deletes_what_the_attempt_resumed_from,
    starts_without_verifying,
    goes_on_before_the_last_checkpoint_is_durable,
    leaves_the_manifest_of_a_failed_commit,
    goes_back_to_the_beginning,
    commits_before_the_files_are_in_storage,
    uploads_all_at_once,
    lets_uploads_keep_the_place_of_one_that_they_wait_for,
    uploads_before_the_sync_period_is_over,
    uploads_nothing_when_the_sync_period_is_over,
    uploads_once,
    uploads_all_parts_again_when_one_is_refused,
    commits_the_newest_first,
    resumes_from_nothing_that_is_only_staged,
    drops_what_earlier_attempts_made,
    uses_names_again,
    gives_up_one_that_is_to_be_kept,
    gives_up_what_is_staged_when_storage_stays_away,
    gives_up_what_is_in_storage_and_lost_on_its_nodes,
    obeys_late_words_of_attempts_that_are_gone,
    never_looks_again_at_what_it_resumes_from,
    starts_from_what_was_verified_no_more,
    stops_before_all_is_durable,
    finishes_without_its_last_checkpoint,
    forgets_that_storage_was_away,
    takes_waiting_for_storage_for_a_hang,
    lets_workers_wait_for_ever,
    takes_up_nothing_that_a_driver_did_not_hear,
    takes_up_what_not_all_ranks_have_reported,
    takes_up_files_that_are_gone,
    takes_up_the_files_of_some_ranks,
    gives_what_it_takes_up_a_name_that_storage_has,
    forgets_what_earlier_attempts_left_to_upload,
    adopts_what_the_run_has_not_built_on,
]
