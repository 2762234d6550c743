"""What happens to an experiment. A durable event is in the journal before it is acted on; replaying those brings the
experiment back to where it was.

Schedulers, searchers and stoppers are asked once: what they say is part of the event that they were asked about, as
its ``answer``, so a replay has their decisions from the journal. A searcher's suggestion is the event ``Added``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct
from msgspec.json import Decoder

from holdfast.core.experiment.scheduler_requests import AnyRequest


class Answer(Struct, frozen=True):
    """What becomes of the trial that the event is about, why, and what else is to be done."""

    action: str = "CONTINUE"  # or "PAUSE", "STOP", "ERROR"
    reason: str = ""
    requests: tuple[AnyRequest, ...] = ()


CONTINUE = Answer()


class Event(Struct, frozen=True):
    durable: ClassVar[bool] = False


class DurableEvent(Event, frozen=True):
    durable = True


class Began(DurableEvent, frozen=True):
    """A driver took the experiment over; ``host`` is what results say of its machine."""

    epoch: int
    host: dict[str, Any] = {}
    marks: bool = False  # it notes what callbacks have heard
    answers: bool = False  # it writes down every answer that is not a plain CONTINUE
    spent_s: float | None = None  # by drivers before it


class Added(DurableEvent, frozen=True):
    trial: str
    config: dict[str, Any]
    params: dict[str, Any]  # the part that was searched, by flat names
    name: str
    directory: str
    resources: list[dict[str, float]] = []
    suggested: dict[str, Any] | None = None  # what the searcher said, where that is not the config itself
    answer: Answer | None = None


class Started(DurableEvent, frozen=True):
    """A trial runs, for the first time or again."""

    trial: str
    time: float


class Reported(DurableEvent, frozen=True):
    """The metrics as the trial gave them, and the number of the checkpoint with them."""

    trial: str
    iteration: int
    metrics: dict[str, Any]
    checkpoint: int | None = None
    time: float = 0.0
    answer: Answer | None = None


class Paused(DurableEvent, frozen=True):
    """A trial's processes are gone, its checkpoint is safe, and it will run again."""

    trial: str


class Exploited(DurableEvent, frozen=True):
    """A trial continues from another one's checkpoint, with another configuration."""

    trial: str
    donor: str
    checkpoint: int
    config: dict[str, Any]


class Ended(DurableEvent, frozen=True):
    """For good, unless a person resumes or restarts it. ``error`` is empty for a good end."""

    trial: str
    error: str = ""
    reason: str = ""
    answer: Answer | None = None


class Resumed(DurableEvent, frozen=True):
    """A trial is to run again: from its checkpoint, or ``anew`` from the beginning."""

    trial: str
    anew: bool = False
    answer: Answer | None = None


class Skipped(DurableEvent, frozen=True):
    """A trial that had not ended is not to run again."""

    trial: str
    answer: Answer | None = None


class Idled(DurableEvent, frozen=True):
    """Nothing ran, nothing could be started, and the scheduler was told."""

    answer: Answer | None = None


class StopDecided(DurableEvent, frozen=True):
    """No trial is started any more, and those that run are stopped."""

    reason: str


class CallbackChanged(DurableEvent, frozen=True):
    """What a callback wants to be given again after a restore."""

    place: int  # among the callbacks
    name: str  # of its class
    state: dict[str, Any]


class Over(DurableEvent, frozen=True):
    """All trials have ended."""


class OfTrial(DurableEvent, frozen=True):
    """A record of a trial's own run."""

    trial: str
    kind: str
    body: dict[str, Any]


class CallbacksTold(DurableEvent, frozen=True):
    """So many results and ends has this driver told to callbacks."""

    count: int


class RunGone(Event, frozen=True):
    """None of a trial's processes is left, and what it reported has been delivered."""

    trial: str
    error: str = ""
    was_stopped: bool = False  # by the experiment or by somebody else; it did not come to its end


class StopAsked(Event, frozen=True):
    """Somebody wants the driver to end, and the experiment to be resumed later."""

    why: str
    at_once: bool = False


class ClockLookedAt(Event, frozen=True):
    """A time budget may be used up."""


KINDS: dict[str, type[DurableEvent]] = {kind.__name__: kind for kind in DurableEvent.__subclasses__()}
for _kind in KINDS.values():
    Decoder(_kind)  # learns the type now: two threads that first meet one at the same time would crash
