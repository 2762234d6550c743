"""Mistakes that somebody could make when a lost rank alone is replaced. The simulator must notice every one of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import moving, regrouping, standby
from holdfast.core.run.state import Attempt, Charge, Regroup, RunState
from holdfast.core.run.turn import Turn
from holdfast.driver.attempts import Attempts
from holdfast.driver.outbound import Outbound


def never_replaces_a_rank_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regrouping, "may_replace", lambda _state, _event: False)


def replaces_a_rank_whose_peers_cannot_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    right = regrouping.may_replace

    def broken(state: RunState, event: ev.WorkerFailed) -> bool:
        attempt = state.attempt
        if attempt is not None:
            ranks = attempt.ranks
            for rank in range(len(ranks)):
                ranks = ranks.changed(rank, armed=True)
            state = structs.replace(state, attempt=structs.replace(attempt, ranks=ranks))
        return right(state, event)

    monkeypatch.setattr(regrouping, "may_replace", broken)


def replaces_a_rank_that_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    right = regrouping.may_replace

    def broken(state: RunState, event: ev.WorkerFailed) -> bool:
        evidence = event.evidence
        if evidence.exception:
            evidence = structs.replace(evidence, exception="", message="", signal=9)
        return right(state, structs.replace(event, evidence=evidence))

    monkeypatch.setattr(regrouping, "may_replace", broken)


def replaces_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regrouping, "_MOST_IN_A_ROW", 100)


def takes_the_state_of_who_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    right = regrouping._regroup

    def broken(turn: Turn) -> None:
        right(turn)
        commands = [_of_who_is_behind(turn.state, command) for command in turn.commands]
        turn.commands[:] = commands

    monkeypatch.setattr(regrouping, "_regroup", broken)


def _of_who_is_behind(state: RunState, command: do.Command) -> do.Command:
    if not isinstance(command, do.Decide) or not isinstance(command.event, ev.Regrouped):
        return command
    attempt = state.attempt
    assert attempt is not None
    assert attempt.regroup is not None
    steps = {rank: standing.steps for rank, standing in attempt.regroup.asked.items() if not standing.joins}
    source = min(steps, key=lambda rank: steps[rank])
    return do.Decide(structs.replace(command.event, source=source))


def does_not_wait_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    right = regrouping.asked

    def broken(turn: Turn, event: ev.RegroupAsked) -> str:
        attempt = turn.state.attempt
        if attempt is not None and attempt.regroup is not None and event.standing.joins:
            others = {rank: event.standing for rank in range(len(attempt.ranks)) if rank not in attempt.regroup.asked}
            others = {r: structs.replace(s, joins=r in attempt.regroup.lost, steps=0) for r, s in others.items()}
            known = structs.replace(attempt.regroup, asked={**others, **attempt.regroup.asked})
            turn.change_attempt(regroup=known)
        return right(turn, event)

    monkeypatch.setattr(regrouping, "asked", broken)
    monkeypatch.setitem(_handlers(), ev.RegroupAsked, broken)


def waits_for_a_replacement_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turn: Turn) -> Regroup:
        attempt = turn.state.attempt
        assert attempt is not None
        return attempt.regroup or Regroup(attempt.regroups)

    monkeypatch.setattr(regrouping, "_begun", broken)


def gives_one_standby_to_two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(attempt: Attempt, node: str) -> int:
        return next((number for number, one in attempt.standbys.items() if one.ready and one.node == node), 0)

    monkeypatch.setattr(standby, "chosen", broken)


def starts_standbys_before_ranks_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_are_useful", lambda _state, _attempt: True)


def has_reports_of_the_lost_rank_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = regrouping.regrouped

    def broken(turn: Turn, event: ev.Regrouped) -> str:
        said = right(turn, event)
        for number, command in enumerate(turn.commands):
            if isinstance(command, do.RegroupRanks):
                turn.commands[number] = structs.replace(command, made=(0,) * len(command.made))
        return said

    monkeypatch.setitem(_handlers(), ev.Regrouped, broken)


def takes_back_what_a_node_was_not_charged_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regrouping, "Charge", lambda *known, of_node: Charge(*known, of_node=not of_node))


def moves_a_rank_while_its_files_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = moving.advance

    def broken(turn: Turn) -> None:
        attempt = turn.state.attempt
        if attempt is None or not attempt.pending:
            right(turn)
            return
        turn.change_attempt(pending={})
        right(turn)
        turn.change_attempt(pending=attempt.pending)

    monkeypatch.setattr(moving, "advance", broken)


def believes_that_a_node_is_empty_which_has_not_heard_all(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Attempts.take_gone
    monkeypatch.setattr(Attempts, "take_gone", lambda self, node, number, _orders=0: right(self, node, number))


def starts_a_rank_of_an_attempt_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Outbound.carry_out

    def broken(self: Outbound, command: do.Command) -> None:
        if isinstance(command, do.ReplaceRank):
            where = (command.attempt_number, command.rank, command.number, command.standby)
            self._known.attempts.replace(*where)
        else:
            right(self, command)

    monkeypatch.setattr(Outbound, "carry_out", broken)


def watches_for_one_hang_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody:
        watch = staticmethod(lambda _turn: None)

    monkeypatch.setattr(regrouping, "hanging", Nobody)


def _handlers() -> dict[Any, Any]:
    from holdfast.core.run import step

    return step._HANDLERS


MUTANTS = [
    never_replaces_a_rank_alone,
    replaces_a_rank_whose_peers_cannot_wait,
    replaces_a_rank_that_raised,
    replaces_again_and_again,
    takes_the_state_of_who_is_behind,
    does_not_wait_for_everybody,
    waits_for_a_replacement_without_end,
    gives_one_standby_to_two_ranks,
    starts_standbys_before_ranks_can_wait,
    has_reports_of_the_lost_rank_made_again,
    takes_back_what_a_node_was_not_charged_with,
    moves_a_rank_while_its_files_are_needed,
    believes_that_a_node_is_empty_which_has_not_heard_all,
    starts_a_rank_of_an_attempt_that_ends,
    watches_for_one_hang_only,
]
