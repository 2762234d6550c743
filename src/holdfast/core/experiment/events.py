"""The events of an experiment. A durable event is in the journal before it is acted on; replaying them restores the
experiment.

Schedulers, searchers and stoppers are asked once: their ``answer`` is part of the event about which they were asked, so
a replay has their decisions from the journal. A searcher's suggestion is the event ``Added``.
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
CRITERION_MET = Answer("STOP", "its stop criterion is met")


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
    suggested: dict[str, Any] | None = None  # the searcher's suggestion, if it differs from the config
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
    """A trial's processes have exited, its checkpoint is safe, and it will run again."""

    trial: str


class Exploited(DurableEvent, frozen=True):
    """A trial continues from another trial's checkpoint, with another configuration."""

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
    """A trial will run again: from its checkpoint, or from the beginning if ``anew``."""

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
    """No further trial is started, and the running ones are stopped."""

    reason: str


class CallbackChanged(DurableEvent, frozen=True):
    """The state that a callback gets back after a restore."""

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
    """All processes of a trial have exited, and its reports have been delivered."""

    trial: str
    error: str = ""
    was_stopped: bool = False  # by the experiment or from outside; it did not reach its end


class StopAsked(Event, frozen=True):
    """A stop was requested: the driver ends, and the experiment can be resumed later."""

    why: str
    at_once: bool = False


class ClockLookedAt(Event, frozen=True):
    """A time budget may be used up."""


KINDS: dict[str, type[DurableEvent]] = {kind.__name__: kind for kind in DurableEvent.__subclasses__()}
for _kind in KINDS.values():
    Decoder(_kind)  # learns the type now: two threads that first meet one at the same time would crash
