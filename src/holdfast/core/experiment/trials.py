"""The effects of the events in a trial's life, from its creation to its end."""

from __future__ import annotations

from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment.result_row import take_result
from holdfast.core.experiment.scheduler_requests import AnyRequest
from holdfast.core.experiment.trial import ERROR, PAUSED, PENDING, RUNNING, TERMINATED, Trial
from holdfast.core.experiment.turn import Turn, set_config

UNKNOWN = "the journal has lost the record of that trial"


def added(turn: Turn, event: ev.Added) -> str:
    state = turn.state
    if event.trial in state.trials:
        return f"{event.name} is there already"
    where = event.trial, event.config, event.params, event.name, event.directory
    trial = state.trials[event.trial] = state.live[event.trial] = Trial(*where, event.resources)
    trial.changed = turn.now
    _answered(turn, event, tuple(turn.policy.added(state, trial, event, turn.is_replay)))
    return f"{event.name} is added"


def started(turn: Turn, event: ev.Started) -> str:
    trial = turn.trial(event.trial)
    if trial is None or trial.has_ended:
        return UNKNOWN
    if trial.status == PAUSED:
        turn.policy.unpaused(trial)
    if trial.donor is not None:  # an exploit that failed still counts, so that no other gets its mark
        trial.donor, trial.exploits = None, trial.exploits + 1
    _awaits_nothing(turn, trial)
    trial.status, trial.reason = RUNNING, ""
    trial.restored_at = (trial.checkpoint_number or 0, trial.time_total_s)
    trial.last_time = event.time
    turn.journal(event)
    turn.do(do.Run(trial.trial_id))
    return f"{trial.name} starts"


def reported(turn: Turn, event: ev.Reported) -> str:
    trial = turn.trial(event.trial)
    if trial is None or trial.status != RUNNING or trial.awaits:
        return "it was told to stop before it said that"
    take_result(trial, event, turn.state.host)
    answer = turn.settled(event, turn.policy.reported(turn.state, trial))
    turn.journal(event, answer)
    if answer.action != "CONTINUE":
        turn.expect(trial, answer.action, answer.reason)
    turn.carry_out(answer.requests)
    if not turn.is_replay:
        if not trial.awaits:
            free = turn.policy.free_until(trial.trial_id, event.iteration)
            turn.do(do.LetContinue(trial.trial_id, max(event.iteration, free)))
        if not turn.state.stopping and turn.policy.stops_all():
            turn.do(do.Decide(ev.StopDecided("the stop criterion of the experiment is met")))
    return f"{trial.name} reported {event.iteration}: {answer.action}"


def paused(turn: Turn, event: ev.Paused) -> str:
    trial = turn.trial(event.trial)
    if trial is None or trial.has_ended:
        return UNKNOWN
    trial.status = PENDING if trial.awaits == "EXPLOIT" else PAUSED
    _awaits_nothing(turn, trial)
    turn.policy.paused(trial)
    turn.journal(event)
    return f"{trial.name} is paused"


def exploited(turn: Turn, event: ev.Exploited) -> str:
    trial = turn.trial(event.trial)
    if trial is None:
        return UNKNOWN
    trial.donor, trial.exploits = None, trial.exploits + 1
    set_config(turn, trial, event.config)
    trial.checkpoint_number = trial.heard = event.checkpoint
    donor = turn.state.trials.get(event.donor)
    trial.sums = dict(donor.sums) if donor is not None else {}
    turn.journal(event)
    return f"{trial.name} continues from {event.donor}"


def ended(turn: Turn, event: ev.Ended | ev.Skipped) -> str:
    trial = turn.trial(event.trial)
    if trial is None or trial.has_ended:
        return UNKNOWN if trial is None else f"{trial.name} has ended already"
    error = event.error if isinstance(event, ev.Ended) else ""
    was_running = trial.status == RUNNING
    _awaits_nothing(turn, trial)
    trial.status, trial.donor, trial.last_time = ERROR if error else TERMINATED, None, 0.0
    trial.reason = event.reason if isinstance(event, ev.Ended) else "it was not to be resumed"
    trial.error = error or trial.error
    del turn.state.live[trial.trial_id]
    if trial.last_result:
        trial.last_result = {**trial.last_result, "done": True}
    _answered(turn, event, tuple(turn.policy.ended(turn.state, trial, was_running)))
    trial.pack()
    if error and turn.state.limits.fail_fast and not turn.is_replay:
        driver = turn.state.driver
        driver.failed_fast = trial.trial_id
        driver.interrupted = driver.interrupted or f"{trial.name} failed, and fail_fast is set"
        turn.do(do.Interrupt(driver.interrupted))
    return f"{trial.name} has ended: {error or trial.reason or 'by itself'}"


def resumed(turn: Turn, event: ev.Resumed) -> str:
    trial = turn.trial(event.trial)
    if trial is None:
        return UNKNOWN
    removed = turn.policy.removed(turn.state, trial) if not trial.has_ended else ()
    trial.unpack()
    _awaits_nothing(turn, trial)
    trial.status, trial.error, trial.donor, trial.reason = PENDING, None, None, ""
    if event.anew:
        trial.life += 1
        trial.directory = f"{trial.directory.partition('.restart-')[0]}.restart-{trial.life}"
        trial.last_result, trial.results, trial.time_total_s = {}, 0, 0.0
        trial.checkpoint_number, trial.heard, trial.sums = None, 0, {}
    turn.state.live[trial.trial_id] = trial
    _answered(turn, event, (*removed, *turn.policy.resumed(turn.state, trial)))
    return f"{trial.name} is to run again"


def of_trial(turn: Turn, event: ev.OfTrial) -> str:
    """A new attempt of its run starts from a checkpoint, and repeats the reports after it."""
    trial = turn.state.trials.get(event.trial)
    if trial is not None and event.kind == "GroupStarted":
        trial.heard = min(trial.heard, event.body.get("base", trial.heard))
    return f"{event.kind} of {event.trial}"


def after_the_end(trial: Trial) -> ev.Event:
    """The event for a trial that was told to stop and has stopped."""
    if trial.awaits == "ERROR":
        return ev.Ended(trial.trial_id, trial.reason)
    if trial.awaits == "STOP":
        return ev.Ended(trial.trial_id, "", trial.reason)
    return ev.Paused(trial.trial_id)


def run_gone(turn: Turn, event: ev.RunGone) -> str:
    driver = turn.state.driver
    driver.active.pop(event.trial, None)
    trial = turn.state.trials[event.trial]
    if trial.has_ended:
        return f"{trial.name} had ended before"
    if event.error:
        turn.do(do.Decide(ev.Ended(trial.trial_id, event.error)))
    elif trial.awaits and (event.was_stopped or trial.awaits in ("STOP", "ERROR")):
        turn.do(do.Decide(after_the_end(trial)))  # also if it came to its end before it was stopped
    elif not event.was_stopped:
        turn.do(do.Decide(ev.Ended(trial.trial_id)))
    elif not driver.interrupted:
        turn.do(do.Decide(ev.Ended(trial.trial_id, "its run was stopped from outside")))
    return f"{trial.name} does not run any more"


def _awaits_nothing(turn: Turn, trial: Trial) -> None:
    trial.awaits = ""
    turn.state.awaiting.pop(trial.trial_id, None)


def _answered(
    turn: Turn, event: ev.Added | ev.Ended | ev.Skipped | ev.Resumed | ev.Idled, said: tuple[AnyRequest, ...]
) -> None:
    answer = turn.settled(event, ev.Answer(requests=said) if said else ev.CONTINUE)
    turn.journal(event, answer)
    turn.carry_out(answer.requests)
