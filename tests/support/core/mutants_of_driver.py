"""Mistakes that somebody could make in the kernel, and in the decisions that it asks the core for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.run import backpressure, placement, reconciliation
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.reconciliation import Stock
from holdfast.core.run.state import HandoverReason
from holdfast.driver import adoption, handover_notices, inbound, kernel
from holdfast.driver.attempts import Attempts
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.outbox import Outbox
from holdfast.driver.shard_registry import ShardRegistry
from holdfast.driver.startup import Startup


def takes_over_what_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    good = reconciliation.reconcile
    monkeypatch.setattr(reconciliation, "reconcile", lambda state, _given_up, *others: good(state, (), *others))


def takes_over_nothing_that_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*situation: Any) -> Stock:
        stock = good(*situation)
        return Stock([e for e in stock.events if isinstance(e, ev.Damaged)], stock.unwanted, stock.damaged)

    good = reconciliation.reconcile
    monkeypatch.setattr(reconciliation, "reconcile", broken)


def offers_again_what_was_found_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(durable: Any, given_up: Any, stored: Any, gone: Any) -> Stock:
        stock = good(durable, given_up, stored, gone)
        back = [event for event, _ in stored if event.record.id in stock.damaged]
        return Stock([*back, *stock.events], stock.unwanted, ())

    good = reconciliation.reconcile
    monkeypatch.setattr(reconciliation, "reconcile", broken)


def offers_what_has_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    good = reconciliation.reconcile
    monkeypatch.setattr(reconciliation, "reconcile", lambda *situation: good(*situation[:3], {}))


def counts_what_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    good = reconciliation.counts
    monkeypatch.setattr(reconciliation, "counts", lambda durable, _retired, id, epoch: good(durable, (), id, epoch))


def adopts_what_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    good = adoption.is_adoptable
    monkeypatch.setattr(
        adoption, "is_adoptable", lambda state, found, where, _given_up, until: good(state, found, where, (), until)
    )


def starts_as_many_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Attempts, command: do.StartAttempt) -> bool:
        placed = self._nodes.place(command.world_size, command.leased)
        return good(self, msgspec.structs.replace(command, world_size=sum(map(len, placed.values()))))

    good = Attempts.start
    monkeypatch.setattr(Attempts, "start", broken)


def places_workers_on_nodes_that_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeRegistry, "drain", lambda _self, _id: None)


def adopts_nothing_that_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "is_adoptable", lambda *_: False)


def begins_before_what_was_left_is_in_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption.Adoption, "is_busy", property(lambda _self: False))


def starts_an_attempt_though_it_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, _stop: Any = None) -> None:
        good(self)

    good = Startup._end
    monkeypatch.setattr(Startup, "_end", broken)


def hands_over_where_a_rank_has_been(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any, reports: Any) -> int | None:
        return None if good(state, reports) is None else min(reports.values())

    good = handover_notices.handover_point
    monkeypatch.setattr(handover_notices, "handover_point", broken)


def hands_over_before_all_ranks_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any, reports: Any) -> int | None:
        return max(reports.values()) + 1 if reports and state.attempt_lives else None

    monkeypatch.setattr(handover_notices, "handover_point", broken)


def places_an_attempt_again_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: Any, is_well_placed: bool) -> Any:
        again = state.attempt_lives and state.world_size is not None and not is_well_placed
        return ev.HandedOver(state.attempt_number, HandoverReason.RESIZE) if again else None

    monkeypatch.setattr(inbound, "place_again", broken)


def never_lets_workers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(behind: Any, already: bool, *others: Any) -> bool:
        return already or good(behind, already, *others)

    good = backpressure.must_wait
    monkeypatch.setattr(backpressure, "must_wait", broken)


def places_more_on_a_node_than_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    good = placement.capacity_of
    monkeypatch.setattr(placement, "capacity_of", lambda node, needs: good(node, needs) + 1)


def acts_before_it_is_journalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.Kernel, "is_written", property(lambda _self: True))
    monkeypatch.setattr(kernel.Kernel, "_take_journalled", lambda _self, _answer: None)
    monkeypatch.setitem(kernel._TAKE, kernel.fx.Journalled, lambda _kernel, _answer: None)


def forgets_orders_with_a_lost_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbox, "node_lost", lambda _self, _node: [])


def takes_an_attempt_for_gone_with_its_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Attempts, "take_gone", lambda self, _node, attempt_number, _orders=0: attempt_number == self.attempt_number
    )


def does_not_read_the_logs_of_a_lost_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts, "report_log", lambda *_: None)


def gathers_on_a_node_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardRegistry, "lost_with", lambda *_: None)


MUTANTS = [
    takes_over_what_was_given_up,
    takes_over_nothing_that_it_finds,
    offers_again_what_was_found_damaged,
    offers_what_has_no_manifest,
    counts_what_was_deleted,
    adopts_what_was_given_up,
    starts_as_many_as_there_is_room_for,
    places_workers_on_nodes_that_are_taken_away,
    adopts_nothing_that_was_gathered,
    begins_before_what_was_left_is_in_storage,
    starts_an_attempt_though_it_is_to_stop,
    hands_over_where_a_rank_has_been,
    hands_over_before_all_ranks_know,
    places_an_attempt_again_that_has_begun,
    never_lets_workers_go_on,
    places_more_on_a_node_than_it_has_room_for,
    acts_before_it_is_journalled,
    forgets_orders_with_a_lost_node,
    takes_an_attempt_for_gone_with_its_first_node,
    does_not_read_the_logs_of_a_lost_node,
    gathers_on_a_node_that_is_lost,
]
