"""Mistakes that somebody could make with state in memory. The simulator must notice every one of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from holdfast.core.run import events as ev
from holdfast.core.run import memory
from holdfast.core.run.state import RunState, Snapshot
from holdfast.driver.snapshot_registry import SnapshotRegistry


def forgets_what_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunState, "memory", property(lambda _self: None))


def prefers_memory_that_is_older_than_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RunState) -> Snapshot | None:
        kept, size = self.snapshot, self.world_size
        return kept if kept is not None and size is not None and (kept.moves or kept.world_size == size) else None

    monkeypatch.setattr(RunState, "memory", property(broken))


def gives_shards_to_another_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RunState) -> Snapshot | None:
        kept, offer = self.snapshot, self.offer
        is_newest = kept is not None and (offer is None or offer.report <= kept.report)
        return kept if is_newest and self.world_size is not None else None

    monkeypatch.setattr(RunState, "memory", property(broken))


def keeps_what_the_run_has_turned_away_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: ev.AttemptStarted) -> None:
        turn.change(recalled=None, began_at=event.snapshot)

    monkeypatch.setattr(memory, "attempt_started", broken)


def counts_from_the_checkpoint_below(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: RunState, attempt_number: int, world_size: int) -> ev.AttemptStarted:
        event = good(state, attempt_number, world_size)
        return structs.replace(event, base=state.offer.report if state.offer is not None else 0)

    good = memory.next_attempt
    monkeypatch.setattr(memory, "next_attempt", broken)


def takes_a_step_that_one_rank_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, node: str, message: Any, state: RunState) -> Any:
        yield from good(self, node, message, state)
        which = (message.attempt_number, message.step)
        if message.attempt_number == state.attempt_number and state.attempt is not None:
            yield ev.SnapshotTaken(Snapshot(*which, state.base + message.reports, len(state.ranks), message.moves))

    good = SnapshotRegistry._hear_held
    monkeypatch.setattr(SnapshotRegistry, "_hear_held", broken)


def starts_before_the_snapshot_is_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> bool:
        if good(turn):
            turn.change(recalled=turn.state.memory)
        return False

    good = memory.recall
    monkeypatch.setattr(memory, "recall", broken)
    monkeypatch.setattr(SnapshotRegistry, "is_in_place", lambda *_: True)


def does_not_look_where_workers_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "pieces_of", lambda _snapshot, _ranks, _world_size: [memory.SHARED])


def forgets_which_snapshot_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """When ranks were replaced: then its memory is used again before a later one is complete."""

    def broken(self: SnapshotRegistry, steps: int) -> None:
        right(self, steps)

    right = SnapshotRegistry.regrouped
    monkeypatch.setattr(SnapshotRegistry, "regrouped", broken)


def overlooks_that_ranks_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """In what each has of its own, which another number of them cannot take over."""

    def broken(self: SnapshotRegistry, node: str, message: Any, state: RunState) -> Any:
        return right(self, node, structs.replace(message, alike=b""), state)

    right = SnapshotRegistry._hear_held
    monkeypatch.setattr(SnapshotRegistry, "_hear_held", broken)


MUTANTS = [
    forgets_what_is_in_memory,
    prefers_memory_that_is_older_than_a_checkpoint,
    gives_shards_to_another_number_of_workers,
    keeps_what_the_run_has_turned_away_from,
    counts_from_the_checkpoint_below,
    takes_a_step_that_one_rank_completed,
    starts_before_the_snapshot_is_in_place,
    does_not_look_where_workers_are_placed,
    forgets_which_snapshot_is_complete,
    overlooks_that_ranks_differ,
]
