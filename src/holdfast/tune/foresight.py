"""How far a trial may continue before its scheduler or a stopper can decide about it. Up to that point it does not wait
for answers to its reports. Every decision is still made at the result that causes it.
"""

from __future__ import annotations

from typing import Protocol


class ForesightJudge(Protocol):
    def next_decision(self, trial_id: str, iteration: int) -> float: ...


def next_decision(judge: ForesightJudge, method: str, trial_id: str, iteration: int) -> float:
    """The object's forecast. If a class overrides the deciding ``method`` but not the forecast: the next iteration."""
    for kind in type(judge).__mro__:
        if "next_decision" in vars(kind):
            return judge.next_decision(trial_id, iteration)
        if method in vars(kind):
            break
    return iteration + 1
