"""A scheduler's requests in addition to its answer, as values. The experiment carries them out and journals them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Request(Struct, frozen=True, tag=True):
    """The base class of requests: actions on trials that a scheduler asks for."""

    trial_id: str


class SetConfig(Request, frozen=True):
    """Give this configuration to a trial that has not started yet."""

    config: dict[str, Any]


class Save(Request, frozen=True):
    """Save a checkpoint now. This has no effect on a train function, which decides itself when it reports one."""


class StopTrial(Request, frozen=True):
    """Stop another trial that is paused or waits to run. It counts as completed."""

    reason: str


class Resize(Request, frozen=True):
    """Run a trial with these bundles of resources from its next start on. Add a PAUSE to restart it soon."""

    resources: tuple[dict[str, float], ...]


class Exploit(Request, frozen=True):
    """Resume a trial from a checkpoint of the donor, with a new configuration.

    A running trial that continues is restarted in this way. A trial that pauses or is paused starts in this way when
    its turn comes. The donor may be the trial itself. Without a checkpoint number, it is the newest one that the donor
    has by then.
    """

    donor_id: str
    checkpoint: int | None
    config: dict[str, Any]
    donor_config: dict[str, Any]
    step: int
    donor_step: int
    operations: dict[str, Any] = {}

    def policy_row(self) -> list[Any]:
        """Return a line of ``pbt_global.txt`` and ``pbt_policy_<trial>.txt``, as Ray Tune writes them."""
        return [self.trial_id, self.donor_id, self.step, self.donor_step, self.donor_config, self.config]


AnyRequest = SetConfig | Save | StopTrial | Resize | Exploit
KNOWN = (SetConfig, Save, StopTrial, Resize, Exploit)
