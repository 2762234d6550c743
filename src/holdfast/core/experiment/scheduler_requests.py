"""A scheduler's requests in addition to its answer, as values. The experiment carries them out and journals them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Request(Struct, frozen=True, tag=True):
    """An action on a trial that a scheduler requests."""

    trial_id: str


class SetConfig(Request, frozen=True):
    """Give a trial that has not started yet this configuration."""

    config: dict[str, Any]


class Save(Request, frozen=True):
    """Save a checkpoint now, if the trainable can be asked for one; a trainable that reports its own just continues."""


class StopTrial(Request, frozen=True):
    """End another trial that is paused or waits to run. It counts as completed."""

    reason: str


class Resize(Request, frozen=True):
    """Run the trial with these bundles of resources from its next start on. A PAUSE makes it restart soon."""

    resources: tuple[dict[str, float], ...]


class Exploit(Request, frozen=True):
    """Let the trial resume from a checkpoint of the donor, with a new configuration.

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


AnyRequest = SetConfig | Save | StopTrial | Resize | Exploit
KNOWN = (SetConfig, Save, StopTrial, Resize, Exploit)
