"""What happens to an experiment, as its journal has it. Replaying them brings the machine back to where it was."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Event(Struct, frozen=True):
    pass


class Began(Event, frozen=True):
    """A driver took the experiment over; ``host`` is what results say of its machine."""

    epoch: int
    host: dict[str, Any] = {}
    marks: bool = False  # it notes what callbacks have heard


class Added(Event, frozen=True):
    trial: str
    config: dict[str, Any]
    params: dict[str, Any]  # the part that was searched, by flat names
    name: str
    directory: str
    resources: list[dict[str, float]]
    suggested: dict[str, Any] | None = None  # what the searcher said, where that is not the config itself


class Started(Event, frozen=True):
    """A trial runs, for the first time or again."""

    trial: str
    time: float


class Reported(Event, frozen=True):
    """The metrics as the trial gave them, what is added to every result, and the number of the checkpoint with it."""

    trial: str
    iteration: int
    metrics: dict[str, Any]
    checkpoint: int | None
    time: float


class Paused(Event, frozen=True):
    """A trial's processes are gone, its checkpoint is safe, and it will run again."""

    trial: str


class Exploited(Event, frozen=True):
    """A trial goes on from another one's checkpoint, with another configuration."""

    trial: str
    donor: str
    checkpoint: int
    config: dict[str, Any]


class Ended(Event, frozen=True):
    """For good, unless it is resumed or restarted by a person. ``error`` is empty for a good end."""

    trial: str
    error: str = ""
    reason: str = ""


class Resumed(Event, frozen=True):
    """A trial that had ended is to run again: from its checkpoint, or ``anew`` from the beginning."""

    trial: str
    anew: bool = False


class Skipped(Event, frozen=True):
    """A trial that had not ended is not to run again."""

    trial: str


class Idled(Event, frozen=True):
    """Nothing ran, nothing could be started, and the scheduler was told."""


class StopDecided(Event, frozen=True):
    """No trial is started any more, and those that run are stopped."""

    reason: str


class CallbackChanged(Event, frozen=True):
    """What a callback wants to be given again after a restore."""

    place: int  # among the callbacks
    name: str  # of its class
    state: dict[str, Any]


class Over(Event, frozen=True):
    """All trials have ended."""


KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}
