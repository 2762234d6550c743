"""The experiment's machine: ``step(state, event, now, policy) -> (state, commands, reason)``.

All decisions about trials are made in this folder and in the policy, which is called only from here. A durable event
must be journalled before its commands are carried out: its first command says so. ``advance`` decides the next action
when nothing happens: which trial is added or started, and when the experiment has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment import trials
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.state import DriverMemory, ExperimentState
from holdfast.core.experiment.trial import PENDING, RUNNING
from holdfast.core.experiment.turn import Turn

Step = tuple[ExperimentState, list[do.Command], str]


def step(state: ExperimentState, event: ev.Event, now: float, policy: Policy) -> Step:
    """Take one event in; what to do comes out, with the reason in words. The state given in is used up."""
    turn = Turn(state, now, policy, is_replay=False)
    reason = _HANDLERS[type(event)](turn, event)
    return state, turn.commands, reason


def replay(state: ExperimentState, event: ev.Event, now: float, policy: Policy) -> ExperimentState:
    """Take a journalled event in again. Its commands were carried out, or died with the driver that had them."""
    _HANDLERS[type(event)](Turn(state, now, policy, is_replay=True), event)
    return state


def _began(turn: Turn, event: ev.Began) -> str:
    state = turn.state
    state.epoch, state.host, state.answers_recorded = event.epoch, event.host, event.answers
    state.is_over, state.stopping, state.driver = False, "", DriverMemory()
    for trial in state.live.values():
        if trial.status == RUNNING and not trial.awaits:
            trial.status = PENDING
    turn.journal(event)
    return f"driver {event.epoch} begins"


def _idled(turn: Turn, event: ev.Idled) -> str:
    requests = tuple(turn.policy.idled(turn.state))
    answer = turn.settled(event, ev.Answer(requests=requests) if requests else ev.CONTINUE)
    turn.journal(event, answer)
    turn.carry_out(answer.requests)
    return "nothing runs"


def _stop_decided(turn: Turn, event: ev.StopDecided) -> str:
    turn.state.stopping = event.reason
    for trial in turn.state.live.values():
        if trial.awaits not in ("STOP", "ERROR"):
            turn.expect(trial, "STOP", event.reason)
    turn.journal(event)
    return event.reason


def _callback_changed(turn: Turn, event: ev.CallbackChanged) -> str:
    turn.state.callback_states[event.place, event.name] = event.state
    turn.journal(event)
    return f"the state of {event.name}"


def _over(turn: Turn, event: ev.Over) -> str:
    turn.state.is_over = True
    turn.journal(event)
    turn.do(do.Finish())
    return "all trials have ended"


def _stop_asked(turn: Turn, event: ev.StopAsked) -> str:
    driver = turn.state.driver
    driver.interrupted = driver.interrupted or event.why
    turn.do(do.Interrupt(event.why, event.at_once))
    return event.why


def _clock_looked_at(turn: Turn, _event: ev.ClockLookedAt) -> str:
    state = turn.state
    if not (state.stopping or state.is_over or state.driver.interrupted) and turn.policy.stops_all():
        turn.do(do.Decide(ev.StopDecided("the experiment's stop criterion is met")))
        return "the stop criterion is met"
    return "there is time left"


_HANDLERS: dict[type[ev.Event], Callable[[Turn, Any], str]] = {
    ev.Began: _began,
    ev.Added: trials.added,
    ev.Started: trials.started,
    ev.Reported: trials.reported,
    ev.Paused: trials.paused,
    ev.Exploited: trials.exploited,
    ev.Ended: trials.ended,
    ev.Skipped: trials.ended,
    ev.Resumed: trials.resumed,
    ev.Idled: _idled,
    ev.StopDecided: _stop_decided,
    ev.CallbackChanged: _callback_changed,
    ev.Over: _over,
    ev.OfTrial: trials.of_trial,
    ev.CallbacksTold: lambda _turn, event: f"callbacks have heard {event.count}",
    ev.RunGone: trials.run_gone,
    ev.StopAsked: _stop_asked,
    ev.ClockLookedAt: _clock_looked_at,
}
