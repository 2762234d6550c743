"""A lost rank is replaced while its peers keep their processes, their models and their place in the loop. This is the
fastest way to recover and is tried first. It needs a survivor with the whole state, and every survivor must be in a
step that it can repeat. It ends when all ranks, including the replacement, have asked to form a group again. If it is
impossible or takes too long, the attempt ends and the next one follows, as after any failure.
"""

from __future__ import annotations

from msgspec import structs

from holdfast.core.budgets import CLASSES
from holdfast.core.failures import Evidence, classify, describe, may_follow
from holdfast.core.run import checkpointing, failing, hanging, standby, timers
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.phases import end_attempt, stops_soon
from holdfast.core.run.ranks import NO_PROCESS
from holdfast.core.run.state import Charge, Phase, RankStatus, Regroup, RunState, Verdict
from holdfast.core.run.turn import Turn

_MOST_IN_A_ROW = 3  # failures without a step or a checkpoint in between


def judged(state: RunState, event: ev.WorkerFailed) -> ev.WorkerFailed:
    """The event with two answers: whether only this rank is replaced, and whether it failed because of a rank that is
    being replaced. The answers depend on volatile state, so they are journalled with the event."""
    if may_replace(state, event):
        attempt = state.attempt
        assert attempt is not None
        return structs.replace(event, live=True, standby=standby.chosen(attempt, event.node))
    return structs.replace(event, follows=_follows(state, event))


def may_replace(state: RunState, event: ev.WorkerFailed) -> bool:
    attempt = state.attempt
    if attempt is None or event.attempt_number != state.attempt_number or state.phase is not Phase.RUNNING:
        return False
    if state.spec.regroup_timeout_s <= 0 or not state.durable.is_undecided or attempt.handover is not None:
        return False
    if event.evidence.exception or not CLASSES[classify(event.evidence)].costs_one_process:
        return False
    if state.durable.streak >= _MOST_IN_A_ROW or attempt.ranks.has(RankStatus.RETURNED):
        return False
    lost = attempt.regroup.lost if attempt.regroup is not None else frozenset()
    survivors = [rank for rank in range(len(attempt.ranks)) if rank != event.rank and rank not in lost]
    return bool(survivors) and all(attempt.ranks[rank].armed for rank in survivors)


def _follows(state: RunState, event: ev.WorkerFailed) -> bool:
    regroup = state.attempt.regroup if state.attempt is not None else None
    counted = state.durable.is_undecided and state.failure is not None
    is_present = event.attempt_number == state.attempt_number and state.attempt_lives
    return is_present and counted and regroup is not None and bool(regroup.lost) and may_follow(event.evidence)


def worker_failed(turn: Turn, event: ev.WorkerFailed) -> str:
    if not turn.is_current(event.attempt_number) or not (event.live or event.follows):
        return failing.worker_failed(turn, event)
    if event.follows:
        turn.set_rank(event.rank, status=RankStatus.DEAD)
        _give_up(turn)
        return f"{describe(event.rank, event.evidence)} (not counted: a peer is being replaced)"
    return _replace(turn, event)


def _replace(turn: Turn, event: ev.WorkerFailed) -> str:
    known, rank, text = turn.state.durable, event.rank, describe(event.rank, event.evidence)
    turn.record(streak=known.streak + 1)
    failing.count(turn, rank, event.evidence, text)
    charge = Charge(event.node, known.same_error, may_follow(event.evidence), of_node=False)
    turn.record(charge=charge if CLASSES[classify(event.evidence)].may_be_knock_on else None)
    if turn.state.verdict is Verdict.FAIL:
        turn.set_rank(rank, status=RankStatus.DEAD)
        end_attempt(turn, "failure", graceful=False)
        return text
    turn.record(verdict=None)
    if turn.state.ranks[rank].stopped:
        turn.do(do.CancelTimer(timers.stopped(rank)))
    regroup = _begun(turn)
    asked = {other: standing for other, standing in regroup.asked.items() if other != rank}
    regroup = Regroup(regroup.number + 1, regroup.lost | {rank}, asked)
    turn.give_rank(rank, regroup.number)
    turn.change_attempt(regroup=regroup, regroups=regroup.number)
    if event.standby:
        standby.take(turn, event.standby, rank)
    turn.do(do.ReplaceRank(turn.state.attempt_number, rank, regroup.number, event.standby))
    turn.do(do.TellPeersLost(turn.state.attempt_number, regroup.number))
    by = f" by standby {event.standby}" if event.standby else ""
    return f"{text}; it is replaced{by}, and its peers wait for it"


def _begun(turn: Turn) -> Regroup:
    attempt = turn.state.attempt
    assert attempt is not None
    turn.do(do.SetTimer(timers.REGROUP, turn.state.spec.regroup_timeout_s))
    return attempt.regroup or Regroup(attempt.regroups)


def worker_armed(turn: Turn, event: ev.WorkerArmed) -> str:
    if not turn.is_present(event):
        return "a process that is gone"
    turn.set_rank(event.rank, armed=True)
    standby.fill(turn)
    return f"rank {event.rank} can do its step again"


def is_of_its_rank(state: RunState, attempt_number: int, rank: int, process: int) -> bool:
    """False for a process whose rank was given to another process. It may have exited unnoticed, be stopped, or still
    live on the node that the rank has left. Its messages about itself no longer count."""
    is_old = state.attempt is not None and rank < len(state.ranks) and state.ranks[rank].process != process
    return attempt_number != state.attempt_number or not is_old


def may_report(state: RunState, attempt_number: int, rank: int, process: int) -> bool:
    """Until all ranks continue, late reports of a lost process still count, even if the ranks never continue: its
    replacement starts after them. Once all ranks continue, a report of the old process would count twice."""
    return is_of_its_rank(state, attempt_number, rank, process) or process == state.ranks[rank].before


def asked(turn: Turn, event: ev.RegroupAsked) -> str:
    """A survivor may ask to regroup before the driver has heard of the lost peer."""
    attempt = turn.state.attempt
    if attempt is None or not turn.is_present(event) or turn.state.phase is not Phase.RUNNING:
        return "a process that is gone"
    regroup = attempt.regroup or _begun(turn)
    standings = {**regroup.asked, event.rank: event.standing}
    turn.change_attempt(regroup=structs.replace(regroup, asked=standings))
    turn.set_rank(event.rank, seen=turn.now)
    if regroup.lost and len(standings) == len(attempt.ranks):
        _regroup(turn)
    return f"rank {event.rank} waits for its peers"


def _regroup(turn: Turn) -> None:
    attempt = turn.state.attempt
    assert attempt is not None
    assert attempt.regroup is not None
    standings = attempt.regroup.asked
    survivors = {rank: standing for rank, standing in standings.items() if not standing.joins}
    steps = {standing.steps for standing in survivors.values()}
    joining = tuple(sorted(rank for rank, standing in standings.items() if standing.joins))
    if not steps or max(steps) - min(steps) > 1 or not set(joining) >= attempt.regroup.lost:
        turn.do(do.Decide(ev.RegroupFailed(turn.state.attempt_number, "no survivor has the state that is needed")))
        return
    source = min(rank for rank, standing in survivors.items() if standing.steps == max(steps))
    progressed = max(steps) > attempt.regrouped_at
    where = (turn.state.attempt_number, attempt.regroup.number, max(steps), source, survivors[source].reports, joining)
    by_standby = tuple(rank for rank in joining if any(one.rank == rank for one in attempt.standbys.values()))
    turn.do(do.Decide(ev.Regrouped(*where, progressed, by_standby)))


def regrouped(turn: Turn, event: ev.Regrouped) -> str:
    turn.record(charge=None, streak=0 if event.progressed else turn.state.durable.streak)
    attempt = turn.state.attempt
    if attempt is None or attempt.regroup is None:
        return "an earlier driver saw it"
    steps = tuple(attempt.regroup.asked[rank].steps for rank in range(len(attempt.ranks)))
    made = tuple(rank.reports for rank in attempt.ranks)
    turn.change_attempt(regroup=None, regrouped_at=event.steps)
    standby.forget_taken(turn)
    for rank in range(len(made)):
        turn.set_rank(rank, seen=turn.now)
    for rank in event.replaced:
        turn.set_rank(rank, before=NO_PROCESS)
        _skip_reports(turn, rank, event.reports)
    turn.do(do.CancelTimer(timers.REGROUP))
    hanging.watch(turn)  # the watch ends when it finds a hang
    turn.do(
        do.RegroupRanks(event.attempt_number, event.number, event.source, steps, event.reports, made, event.replaced)
    )
    return f"{told(event)}; all ranks continue after step {event.steps}, with the state of rank {event.source}"


def told(event: ev.Regrouped) -> str:
    """Who was replaced by what, for a person."""
    one = "a standby worker" if len(event.by_standby) == 1 else "standby workers"
    ranks = ", ".join(map(str, event.replaced))
    if not event.by_standby or event.by_standby == event.replaced:
        return f"rank {ranks} replaced{f' by {one}' if event.by_standby else ''}"
    return f"rank {ranks} replaced, rank {', '.join(map(str, event.by_standby))} by {one}"


def _skip_reports(turn: Turn, rank: int, reports: int) -> None:
    """The replacement starts after reports that the lost rank had not made. Their checkpoints would lack its part, so
    they are given up."""
    made = turn.state.ranks[rank].reports
    for index in range(made, reports):
        checkpointing.give_up(turn, index)
        if index in turn.state.pending:
            pending = turn.state.pending[index]
            turn.drop_pending(pending)
            turn.do(do.Discard(pending.attempt_number, index), do.CancelTimer(timers.missing(index)))
            turn.do(do.Warn(f"{pending.id} was not saved: rank {rank} was lost before it reported its part"))
    turn.set_rank(rank, reports=max(made, reports))


def rank_returned(turn: Turn, rank: int) -> None:
    """A rank that has returned no longer takes part in collectives."""
    attempt = turn.state.attempt
    if attempt is not None and attempt.regroup is not None and attempt.regroup.lost and turn.state.attempt_lives:
        turn.do(do.Decide(ev.RegroupFailed(turn.state.attempt_number, f"rank {rank} has returned")))


def time_out(turn: Turn) -> None:
    attempt = turn.state.attempt
    if attempt is None or attempt.regroup is None or not turn.state.attempt_lives:
        return
    missing = [rank for rank in range(len(attempt.ranks)) if rank not in attempt.regroup.asked]
    if attempt.regroup.lost:
        names = ", ".join(map(str, missing))
        turn.do(do.Decide(ev.RegroupFailed(turn.state.attempt_number, f"rank {names} did not join its peers in time")))
    else:
        evidence = Evidence(stalled_s=turn.state.spec.regroup_timeout_s, message="its peers cannot reach it")
        failing.declare(turn, missing[0] if missing else 0, evidence)


def failed(turn: Turn, event: ev.RegroupFailed) -> str:
    if event.attempt_number != turn.state.attempt_number or not turn.state.attempt_lives:
        return "that attempt is gone"
    _give_up(turn)
    then = "the run stops" if stops_soon(turn.state) else "all ranks start again"
    turn.do(do.Warn(f"the lost rank is not replaced alone, {then}: {event.why}"))
    return event.why


def _give_up(turn: Turn) -> None:
    """The failure that the watch was about has been counted."""
    if not stops_soon(turn.state):
        turn.record(verdict=Verdict.RETRY)
    end_attempt(turn, "failure", graceful=False)
