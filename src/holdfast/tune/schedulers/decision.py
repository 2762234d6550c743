"""What a scheduler answers: what becomes of the trial that reported, why, and what else is to be done.

These are values. The experiment carries them out and writes them to its journal; a scheduler changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

Action = Literal["CONTINUE", "PAUSE", "STOP", "ERROR"]
ACTIONS = ("CONTINUE", "PAUSE", "STOP", "ERROR")


class Request(Struct, frozen=True, tag=True):
    """Something that a scheduler wants done to a trial."""

    trial_id: str


class SetConfig(Request, frozen=True):
    """Give a trial that has not started yet this configuration."""

    config: dict[str, Any]


class Save(Request, frozen=True):
    """Make a checkpoint now if the trainable can be asked for one; one that reports its own goes on as it is."""


class StopTrial(Request, frozen=True):
    """End another trial, which is paused or waits to run, as a good one."""

    reason: str


class Resize(Request, frozen=True):
    """Run the trial with these bundles of resources from its next start on, which its PAUSE makes soon."""

    resources: tuple[dict[str, float], ...]


class Exploit(Request, frozen=True):
    """Let the trial go on from a checkpoint of the donor, with a new configuration.

    A trial that runs and continues is restarted so; one that pauses or is paused starts so when its turn comes. The
    donor may be the trial itself. Without a number it is the newest checkpoint that the donor has by then.
    """

    donor_id: str
    checkpoint: int | None
    config: dict[str, Any]
    donor_config: dict[str, Any]
    step: int
    donor_step: int
    operations: dict[str, Any] = {}

    def policy_row(self) -> list[Any]:
        """A line of ``pbt_global.txt`` and ``pbt_policy_<trial>.txt``, as Ray Tune writes them."""
        return [self.trial_id, self.donor_id, self.step, self.donor_step, self.donor_config, self.config]


def policy_rows(exploits: Iterable[Exploit], trial_id: str) -> list[list[Any]]:
    """The lines of ``pbt_policy_<trial_id>.txt``: how the configuration that the trial has now came about."""
    rows: dict[str, list[list[Any]]] = {}
    for exploit in exploits:
        rows[exploit.trial_id] = [*rows.get(exploit.donor_id, []), exploit.policy_row()]
    return rows.get(trial_id, [])


class Decision(str):
    """The action as a text, so that it equals ``TrialScheduler.STOP`` and "STOP", with its reason and its requests."""

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
        """What a user's scheduler returned: a decision, or an action as plain text."""
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
