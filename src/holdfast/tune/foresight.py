"""How far a trial may continue before its scheduler or a stopper can make a decision about it.

Up to there it need not wait for an answer to its reports, though every decision is still made at the result that causes
it.
"""

from __future__ import annotations

from typing import Protocol


class ForesightJudge(Protocol):
    def next_decision(self, trial_id: str, iteration: int) -> float: ...


def next_decision(judge: ForesightJudge, method: str, trial_id: str, iteration: int) -> float:
    """Its forecast; the next iteration, if a class overrides the ``method`` that decides and not the forecast."""
    for kind in type(judge).__mro__:
        if "next_decision" in vars(kind):
            return judge.next_decision(trial_id, iteration)
        if method in vars(kind):
            break
    return iteration + 1
