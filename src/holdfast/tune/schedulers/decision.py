"""The answer of a scheduler: what happens to the trial that reported, why, and what else to do.

These are values. The experiment carries them out and writes them to its journal; a scheduler changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from holdfast.core.experiment.scheduler_requests import Exploit, Request, Resize, Save, SetConfig, StopTrial

Action = Literal["CONTINUE", "PAUSE", "STOP", "ERROR"]
__all__ = ["Action", "Decision", "Exploit", "Request", "Resize", "Save", "SetConfig", "StopTrial", "policy_rows"]
ACTIONS = ("CONTINUE", "PAUSE", "STOP", "ERROR")


def policy_rows(exploits: Iterable[Exploit], trial_id: str) -> list[list[Any]]:
    """Return the lines of ``pbt_policy_<trial_id>.txt``: the history of the trial's configuration."""
    rows: dict[str, list[list[Any]]] = {}
    for exploit in exploits:
        rows[exploit.trial_id] = [*rows.get(exploit.donor_id, []), exploit.policy_row()]
    return rows.get(trial_id, [])


class Decision(str):
    """What a scheduler decides: an action, a reason and requests. It is a string that equals ``TrialScheduler.STOP``
    and "STOP".
    """

    reason: str
    requests: tuple[Request, ...]

    def __new__(cls, action: str, reason: str = "", requests: Iterable[Request] = ()) -> Decision:
        if action not in ACTIONS:
            raise ValueError(f"Decision(action={action!r}): must be one of {', '.join(ACTIONS)}")
        decision = super().__new__(cls, action)
        decision.reason = reason
        decision.requests = tuple(requests)
        return decision

    @classmethod
    def of(cls, answer: Any) -> Decision:
        """Convert what a user's scheduler returned, a decision or an action as plain text, to a decision."""
        if isinstance(answer, Decision):
            return answer
        if answer in ACTIONS:
            return cls(answer)
        return cls("ERROR", f"The scheduler answered {answer!r}; it must be one of {', '.join(ACTIONS)}")

    @property
    def action(self) -> str:
        return str.__str__(self)

    def __repr__(self) -> str:
        return f"Decision({self.action!r}, {self.reason!r}, {self.requests!r})"

    def __getnewargs__(self) -> Any:
        return self.action, self.reason, self.requests
