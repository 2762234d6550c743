"""From which phase to which other phase one step of a run may lead: only along the table."""

from __future__ import annotations

from holdfast.core.run import events as ev
from holdfast.core.run.phases import TRANSITIONS
from holdfast.core.run.state import Phase, RunState

from .fates import Violation

LONGEST_CHAIN = 4  # moves in one step: the attempt ends, retry, back-off
JUMPS = {ev.DriverStarted: Phase.RESTORING, ev.AttemptStarted: Phase.STARTING, ev.RunEnded: Phase.ENDED}


def judge_phase(before: RunState, event: ev.Event, after: RunState) -> None:
    was, now, kind = before.phase, after.phase, type(event)
    if kind is ev.AttemptStarted:
        lawful = was in (Phase.RESTORING, Phase.WAITING) and now is Phase.STARTING
    elif kind in JUMPS:
        lawful = now is JUMPS[kind] or (JUMPS[kind], now) == (Phase.RESTORING, Phase.WAITING)
    else:
        lawful = was is now or (was, now) in _REACHABLE
    if not lawful:
        raise Violation("phases follow TRANSITIONS", f"{was.value} -> {now.value} on {kind.__name__}")


def _reachable() -> frozenset[tuple[Phase, Phase]]:
    """The phases that one event can reach."""
    edges = {(was, now) for (was, _), now in TRANSITIONS.items()}
    found = set(edges)
    for _ in range(LONGEST_CHAIN - 1):
        found |= {(a, d) for a, b in found for c, d in edges if b is c}
    return frozenset(found)


_REACHABLE = _reachable()
