"""Mistakes that somebody could make in how attempts start and end. The simulator must notice every one of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from holdfast.core.failures import FailureKind
from holdfast.core.run import attempt_life, ending, failing, hanging, phases, scaling, starting, step, timers
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import HandoverReason, Phase, RankStatus, RunState, Verdict
from holdfast.core.run.timers import TimerKind
from holdfast.core.run.turn import Turn


def counts_secondary_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, rank: int, evidence: Any) -> str:
        lives = turn.state.attempt_lives
        text = good(turn, rank, evidence)
        if not lives:
            turn.record(spent={**turn.state.durable.spent, "failures": turn.state.durable.spent.get("failures", 0) + 1})
        return text

    good = failing._fail
    monkeypatch.setattr(failing, "_fail", broken)


def forgets_what_was_spent_when_a_driver_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        turn.record(spent={})
        return good(turn, event)

    good = starting.driver_started
    monkeypatch.setitem(step._HANDLERS, ev.DriverStarted, broken)


def retries_before_the_attempt_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.verdict is Verdict.RETRY and turn.state.phase is Phase.STOPPING:
            phases.move(turn, "attempt gone")
            turn.change_attempt(pending={})
            ending.settle(turn)
        return reason

    good = failing.worker_failed
    monkeypatch.setitem(step._HANDLERS, ev.WorkerFailed, broken)


def retries_once_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any, kind: Any) -> tuple[str, int]:
        budget, limit = good(spec, kind)
        return budget, limit + 1 if limit >= 0 else limit

    good = failing.budget_of
    monkeypatch.setattr(failing, "budget_of", broken)


def listens_to_attempts_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turn, "is_current", lambda self, _attempt_number: len(self.state.ranks) == 4)


def never_looks_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "look", lambda _turn: None)


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

    monkeypatch.setitem(step._HANDLERS, ev.Capacity, broken)


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
    monkeypatch.setitem(step._HANDLERS, ev.HandoverSet, broken)


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
    monkeypatch.setitem(step._HANDLERS, ev.HandoverSet, handover_set)


def never_minds_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    good = scaling.ask
    monkeypatch.setattr(scaling, "ask", lambda turn, handover, _deadline_s: good(turn, handover, None))


def takes_preemptions_for_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any, kind: Any) -> tuple[str, int]:
        return good(spec, FailureKind.CRASH if kind is FailureKind.PREEMPTED else kind)

    good = failing.budget_of
    monkeypatch.setattr(failing, "budget_of", broken)


def charges_a_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if event.reason is HandoverReason.PREEMPTION:
            failing.spend(turn, FailureKind.PREEMPTED)
        return reason

    good = scaling.handed_over
    monkeypatch.setitem(step._HANDLERS, ev.HandedOver, broken)


def counts_what_fails_after_a_hand_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        if turn.state.phase is Phase.STOPPING:
            turn.record(verdict=None)
        return reason

    good = scaling.handed_over
    monkeypatch.setitem(step._HANDLERS, ev.HandedOver, broken)


def takes_who_returned_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        if turn.is_current(event.attempt_number):
            turn.set_rank(event.rank, status=RankStatus.DEAD)
        return good(turn, event)

    good = failing.worker_failed
    monkeypatch.setitem(step._HANDLERS, ev.WorkerFailed, broken)


def forgets_that_an_error_came_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "is_final", failing.is_spent)


def lets_an_error_come_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "_repeats", lambda state: 0 < state.spec.max_same_errors < state.same_error[2] - 1)


def never_gives_a_node_another_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        reason = good(turn, event)
        turn.commands = [
            c for c in turn.commands if not isinstance(c, do.SetTimer) or c.timer.kind is not TimerKind.REST
        ]
        return reason

    good = starting.driver_started
    monkeypatch.setitem(step._HANDLERS, ev.DriverStarted, broken)


def forgets_which_nodes_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        turn.record(resting=frozenset(), node_failures={})
        return good(turn, event)

    good = starting.driver_started
    monkeypatch.setitem(step._HANDLERS, ev.DriverStarted, broken)


def takes_a_slow_start_for_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, event: Any) -> str:
        suspect = turn.state.attempt.suspect
        reason = good(turn, event)
        turn.change_attempt(suspect=suspect)
        return reason

    good = attempt_life.worker_ready
    monkeypatch.setitem(step._HANDLERS, ev.WorkerReady, broken)


def waits_for_stacks_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any, rank: int) -> None:
        good(turn, rank)
        turn.commands = [c for c in turn.commands if not isinstance(c, do.SetTimer) or c.timer != timers.STACKS]

    good = hanging._suspect
    monkeypatch.setattr(hanging, "_suspect", broken)


def finishes_though_it_was_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Any) -> None:
        if turn.state.phase is Phase.RUNNING and all(r.status is RankStatus.RETURNED for r in turn.state.ranks):
            turn.record(verdict=None)
            phases.end_attempt(turn, "all returned", graceful=True)

    monkeypatch.setattr(attempt_life, "_leave_if_all_returned", broken)


def starts_beside_nodes_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_doubt", lambda *_: None)


def waits_for_one_of_the_nodes_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Turn, _: ev.NodeClear) -> str:
        starting.doubt_is_over(turn, turn.state.doubted)
        return "that will do"

    monkeypatch.setitem(step._HANDLERS, ev.NodeClear, broken)


def forgets_who_may_still_train_when_another_driver_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Turn, event: ev.DriverStarted) -> None:
        good(turn, event)
        turn.record(leases={})

    good = starting._doubt
    monkeypatch.setattr(starting, "_doubt", broken)


def takes_what_a_lost_node_made_others_do_for_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "_is_the_cause", lambda _charge, _event: False)


def blames_a_node_for_the_loss_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "_clear_node", lambda _turn, _node: None)


def goes_on_for_a_cause_that_comes_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Turn, event: ev.StopAsked) -> str:
        charge = turn.state.durable.charge
        reason = good(turn, event)
        turn.record(charge=charge)
        return reason

    good = ending.stop_asked
    monkeypatch.setitem(step._HANDLERS, ev.StopAsked, broken)


MUTANTS = [
    counts_secondary_failures,
    forgets_what_was_spent_when_a_driver_starts,
    retries_before_the_attempt_is_gone,
    retries_once_too_often,
    listens_to_attempts_that_are_gone,
    never_looks_for_a_hang,
    starts_with_fewer_than_the_least,
    starts_more_than_there_is_room_for,
    never_resizes,
    does_not_go_on_when_room_comes,
    hands_over_before_all_ranks_are_there,
    hands_over_at_an_earlier_checkpoint,
    keeps_to_a_point_that_was_given_up,
    never_minds_a_deadline,
    takes_preemptions_for_failures,
    charges_a_hand_over,
    counts_what_fails_after_a_hand_over,
    takes_who_returned_for_dead,
    forgets_that_an_error_came_too_often,
    lets_an_error_come_once_more,
    never_gives_a_node_another_chance,
    forgets_which_nodes_rest,
    takes_a_slow_start_for_a_hang,
    waits_for_stacks_for_ever,
    finishes_though_it_was_asked_to_stop,
    starts_beside_nodes_that_cannot_be_reached,
    waits_for_one_of_the_nodes_that_cannot_be_reached,
    forgets_who_may_still_train_when_another_driver_dies,
    takes_what_a_lost_node_made_others_do_for_the_cause,
    blames_a_node_for_the_loss_of_another,
    goes_on_for_a_cause_that_comes_after_a_stop,
]
