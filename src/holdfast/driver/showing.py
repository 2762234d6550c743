"""What the display and the callbacks show of the steps of the core."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run import regrouping
from holdfast.core.run.observer import Observer
from holdfast.core.run.state import Outcome, Phase, RunState, Verdict

from .display import Display
from .effects import Stepped
from .plan import Ending, Plan


def show(step: Stepped, plan: Plan, display: Display, observer: Observer) -> None:
    """The step is about to be acted on; if it is durable, it is in the journal."""
    event, before, state = step.event, step.before, step.after
    events = event.events if isinstance(event, ev.Several) else (event,)
    for one in events[:-1]:
        observer.saw(one, before, before)  # else each of them would have changed the phase
    observer.saw(events[-1], before, state)
    if state.failure is not None and state.failure is not before.failure:
        display.failure(state.failure.text, step.action, state.failure.rank)
        if plan.on_failure is not None and step.failures is not None:
            plan.on_failure(dict(step.failures))
    if isinstance(event, ev.Committed) and event.index >= 0:
        display.checkpoint(event.record.id, event.record.report)
    if isinstance(event, ev.Regrouped):
        display.state(state.phase.value, f"{regrouping.told(event)}, no step is repeated")
    if isinstance(event, ev.StorageLags):
        text = _how_far_behind(str(step.behind), event.stalled, before.stalled)
        display.warning(text)
        observer.warned(text)
    if len(state.unsaved) != len(before.unsaved):
        display.pending(len(state.unsaved), step.behind.bytes)
    if state.phase is not before.phase:
        display.state(phase_in_words(state), _detail(state))


def closing_words(plan: Plan, state: RunState, ending: Ending, had_finished: bool) -> str:
    """``had_finished``: the run had finished before this driver started."""
    newest = state.newest
    saved = f"last checkpoint: {newest.id}" if newest else "no checkpoint was saved"
    if ending.outcome is Outcome.STOPPED:
        return f"{saved}. To resume, {plan.how_to_resume}"
    if ending.error is not None:
        return str(ending.error).partition("\n")[0]
    trained = any(rank.reports for rank in state.ranks)
    idle = "Nothing was trained: the run had already finished, and the script reported nothing new. "
    return f"{idle if had_finished and not trained else ''}{saved}; results in {plan.location}"


def phase_in_words(state: RunState) -> str:
    """As a user would say it."""
    match state.phase:
        case Phase.IDLE:
            return "starting"
        case Phase.RESTORING:
            return "restoring" if state.newest is not None or state.attempt_number else "starting"
        case Phase.STARTING:
            return "starting workers"
        case Phase.STOPPING if state.verdict is Verdict.RETRY:
            return "recovering"
        case Phase.STOPPING if state.ranks.have_all_returned:
            return "finishing"
        case Phase.SETTLING:
            return "recovering" if state.verdict is Verdict.RETRY else "saving checkpoints"
        case Phase.ENDED:
            return "done"
    return str(state.phase.value)


def _how_far_behind(behind: str, stalled: bool, stalled_before: bool) -> str:
    if stalled:
        return f"training waits for storage to catch up: {behind} are not uploaded yet"
    if stalled_before:
        return f"storage has caught up ({behind} left), and training continues"
    return f"storage is slow: {behind} are not uploaded yet. Training continues meanwhile"


def _detail(state: RunState) -> str:
    """Details for a person, in addition to the phase."""
    if state.phase is Phase.STARTING:
        if state.began_at is not None:
            return f"from step {state.began_at[1]:,} in memory"
        return f"from {state.durable.resume or 'the beginning'}"
    if state.phase is Phase.STOPPING and state.verdict is Verdict.STOP:
        return "saves pending checkpoints; press Ctrl+C again to quit immediately"
    return ""
