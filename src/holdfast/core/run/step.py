"""The run's machine: ``step(state, event, now) -> (state, commands, reason)``.

All decisions about a run are made in core/, each subject in its own file; this file dispatches events. State that must
survive the driver changes only by durable events. A decision based on volatile ones (a timeout, for example) is
therefore an event itself: the machine requests it with ``Decide``, and acts when it comes back, journalled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.run import (
    attempt_life,
    checkpointing,
    ending,
    failing,
    hanging,
    memory,
    moving,
    regrouping,
    scaling,
    standby,
    starting,
)
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable, Phase, RunState
from holdfast.core.run.timers import TimerKind
from holdfast.core.run.turn import Turn

Step = tuple[RunState, list[do.Command], str]


def step(state: RunState, event: ev.Event, now: float) -> Step:
    """Take one event in; what to do comes out, with the reason in words."""
    turn = Turn(state, now, event.durable)
    reason = _HANDLERS[type(event)](turn, event)
    moving.advance(turn)
    scaling.hand_over(turn)
    checkpointing.advance(turn)
    starting.reconsider(turn, state)
    ending.settle(turn)
    return turn.state, turn.commands, reason


def replay(durable: Durable, event: ev.Event) -> Durable:
    """Take a journalled event in again. Its commands were carried out, or died with the driver that had them."""
    return step(RunState.replayed(durable), event, 0.0)[0].durable


def _several(turn: Turn, event: ev.Several) -> str:
    for one in event.events:
        _HANDLERS[type(one)](turn, one)
    return f"{len(event.events)} things that workers did"


def _timer_fired(turn: Turn, event: ev.TimerFired) -> str:
    _TIMERS[event.timer.kind](turn, event.timer.of)
    about = "" if event.timer.of is None else f" of {event.timer.of}"
    return f"timer {event.timer.kind.value}{about}"


def _backoff_is_over(turn: Turn) -> None:
    if turn.state.phase is Phase.WAITING:
        starting.start(turn)


def _time_out_start(turn: Turn) -> None:
    if turn.state.phase is Phase.STARTING:
        hanging.time_out_start(turn)


def _look_for_hangs(turn: Turn) -> None:
    if turn.state.phase is Phase.RUNNING:
        hanging.look(turn)


def _rest_is_over(turn: Turn, node: str) -> None:
    if node in turn.state.durable.resting:
        turn.do(do.Decide(ev.NodeRested(node)))


def _report_is_missing(turn: Turn, index: int) -> None:
    if index in turn.state.pending and turn.state.attempt_lives:
        attempt_life.warn_of_missing(turn, index)


_TIMERS: dict[TimerKind, Callable[[Turn, Any], None]] = {
    TimerKind.BACKOFF: lambda turn, _: _backoff_is_over(turn),
    TimerKind.DOUBT: lambda turn, _: starting.doubt_is_over(turn, turn.state.doubted),
    TimerKind.START: lambda turn, _: _time_out_start(turn),
    TimerKind.STOPPED: hanging.stopped_for_long,
    TimerKind.HANG: lambda turn, _: _look_for_hangs(turn),
    TimerKind.STACKS: lambda turn, _: hanging.condemn(turn, -1),
    TimerKind.REGROUP: lambda turn, _: regrouping.time_out(turn),
    TimerKind.MOVE: lambda turn, _: moving.time_out(turn),
    TimerKind.STANDBY: lambda turn, _: standby.wait_is_over(turn),
    TimerKind.HANDOVER: lambda turn, _: scaling.time_out_handover(turn),
    TimerKind.RESIZE: lambda turn, _: scaling.consider_resize(turn),
    TimerKind.REST: _rest_is_over,
    TimerKind.SYNC: lambda turn, _: checkpointing.sync(turn),
    TimerKind.MISSING: _report_is_missing,
}
_HANDLERS: dict[type[ev.Event], Callable[[Turn, Any], str]] = {
    ev.DriverStarted: starting.driver_started,
    ev.AttemptStarted: attempt_life.started,
    ev.WorkerReady: attempt_life.worker_ready,
    ev.Progressed: attempt_life.progressed,
    ev.ShardStaged: checkpointing.shard_staged,
    ev.ShardSealed: checkpointing.shard_sealed,
    ev.ShardUploaded: checkpointing.shard_uploaded,
    ev.ShardFailed: failing.storage_failed,
    ev.UploadFailed: failing.upload_failed,
    ev.StorageLags: checkpointing.storage_lags,
    ev.StagedLost: starting.staged_lost,
    ev.SnapshotTaken: memory.snapshot_taken,
    ev.SnapshotLost: memory.snapshot_lost,
    ev.Recalled: starting.recalled,
    ev.WorkerReturned: attempt_life.worker_returned,
    ev.WorkerFailed: regrouping.worker_failed,
    ev.WorkerArmed: regrouping.worker_armed,
    ev.StandbyReady: standby.ready,
    ev.StandbyLost: standby.lost,
    ev.RegroupAsked: regrouping.asked,
    ev.Regrouped: regrouping.regrouped,
    ev.RegroupFailed: regrouping.failed,
    ev.StacksTaken: hanging.stacks_taken,
    ev.Capacity: starting.capacity,
    ev.CapacityLacking: starting.capacity_lacking,
    ev.NodeClear: starting.node_clear,
    ev.NodeDrains: moving.node_drains,
    ev.RankMoved: moving.moved,
    ev.NodeRested: failing.node_rested,
    ev.HandoverSet: scaling.handover_set,
    ev.HandedOver: scaling.handed_over,
    ev.WorkerStopped: hanging.worker_stopped,
    ev.AttemptGone: attempt_life.gone,
    ev.Committed: checkpointing.committed,
    ev.CommitFailed: failing.storage_failed,
    ev.Verified: starting.verified,
    ev.Damaged: starting.damaged,
    ev.Adopted: starting.adopted,
    ev.Validated: checkpointing.validated,
    ev.Several: _several,
    ev.TimerFired: _timer_fired,
    ev.StopAsked: ending.stop_asked,
    ev.RunEnded: ending.run_ended,
}
