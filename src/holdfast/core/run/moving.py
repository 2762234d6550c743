"""The ranks of a node that will be preempted move to other nodes while training continues, so no attempt ends. For each
of them a standby is started on a node with capacity. A rank moves when its standby is ready and no pending checkpoint
has files of the rank only on the old node. Ranks move one after the other, so that a peer with the whole state always
exists. If some cannot move in half of the time that is left, the attempt is handed over at a checkpoint as usual.
"""

from __future__ import annotations

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import scaling, standby, timers
from holdfast.core.run.state import Attempt, Handover, HandoverReason, Move, Phase, RankStatus, Regroup, Standby
from holdfast.core.run.turn import Turn

_LEAST_S = 2.0  # that a node must stay for a move


def node_drains(turn: Turn, event: ev.NodeDrains) -> str:
    attempt = turn.state.attempt
    if attempt is None or not event.ranks or not _may_move(turn, attempt, event):
        return scaling.node_drains(turn, event)
    before = attempt.move or Move()
    due = turn.now + event.deadline_s if before.due is None else min(before.due, turn.now + event.deadline_s)
    move = Move((*before.nodes, event.node), (*before.ranks, *event.ranks), due)
    first = attempt.standbys_started + 1
    numbers = dict(enumerate(event.ranks, start=first))
    turn.change_attempt(
        move=move,
        standbys={**attempt.standbys, **{number: Standby(moves=rank) for number, rank in numbers.items()}},
        standbys_started=attempt.standbys_started + len(numbers),
    )
    turn.do(*(do.StartStandby(turn.state.attempt_number, number, moves=True) for number in numbers))
    turn.do(do.SetTimer(timers.MOVE, (due - turn.now) / 2))
    return f"{event.node} will go in {event.deadline_s:.0f} s, and its ranks move to other nodes"


def _may_move(turn: Turn, attempt: Attempt, event: ev.NodeDrains) -> bool:
    state = turn.state
    if state.spec.regroup_timeout_s <= 0 or state.phase is not Phase.RUNNING or not state.durable.is_undecided:
        return False
    if attempt.handover is not None or attempt.regroup is not None or attempt.ranks.has(RankStatus.RETURNED):
        return False
    has_room = event.free >= len(event.ranks) and event.deadline_s >= _LEAST_S
    return has_room and len(attempt.ranks) > 1 and all(rank.armed for rank in attempt.ranks)


def advance(turn: Turn) -> None:
    """Move the next rank, if its standby is ready."""
    attempt = turn.state.attempt
    if attempt is None or attempt.move is None or turn.state.phase is not Phase.RUNNING:
        return
    if attempt.handover is not None:
        return  # a new process would not know where all ranks stop
    if attempt.regroup is not None or attempt.pending or not all(rank.armed for rank in attempt.ranks):
        return
    if attempt.ranks.has(RankStatus.RETURNED) or not turn.state.durable.is_undecided:
        return
    for number, one in attempt.standbys.items():
        if one.moves >= 0 and one.is_free:
            turn.do(do.Decide(ev.RankMoved(turn.state.attempt_number, one.moves, number, one.node)))
            return


def moved(turn: Turn, event: ev.RankMoved) -> str:
    """The process on the old node is ended, and its peers wait for the one on the new node, as if it had been lost."""
    turn.record(leases={**turn.state.durable.leases, **dict.fromkeys(event.leased, turn.state.spec.lease_s)})
    attempt, rank = turn.state.attempt, event.rank
    if attempt is None or event.standby not in attempt.standbys or turn.state.phase is not Phase.RUNNING:
        return "that attempt is gone"
    standby.take(turn, event.standby, rank)
    number = attempt.regroups + 1
    left = structs.replace(attempt.move or Move(), ranks=tuple(r for r in (attempt.move or Move()).ranks if r != rank))
    turn.change_attempt(regroup=Regroup(number, frozenset({rank})), regroups=number, move=left if left.ranks else None)
    turn.give_rank(rank, number)
    turn.do(do.SetTimer(timers.REGROUP, turn.state.spec.regroup_timeout_s))
    if not left.ranks:
        turn.do(do.CancelTimer(timers.MOVE))
    turn.do(do.ReplaceRank(turn.state.attempt_number, rank, number, event.standby))
    turn.do(do.TellPeersLost(turn.state.attempt_number, number))
    return f"rank {rank} moves to {event.node}"


def time_out(turn: Turn) -> None:
    """Hand the attempt over at a checkpoint instead, in the time that is left."""
    attempt = turn.state.attempt
    if attempt is None or attempt.move is None or not turn.state.attempt_lives or attempt.handover is not None:
        return
    move = attempt.move
    turn.change_attempt(move=None)
    turn.do(do.CancelTimer(timers.MOVE))
    due = turn.now if move.due is None else move.due
    scaling.ask(turn, Handover(HandoverReason.PREEMPTION, move.nodes, move.ranks, due=due), due - turn.now)
