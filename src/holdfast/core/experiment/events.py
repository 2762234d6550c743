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
    """What happens to the trial of this event, why, and which other actions were requested."""

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
    """A driver took over the experiment. ``host``: the fields about its machine in every result."""

    epoch: int
    host: dict[str, Any] = {}
    marks: bool = False  # it records what it has delivered to callbacks
    answers: bool = False  # it records every answer except a plain CONTINUE
    spent_s: float | None = None  # the time that earlier drivers spent


class Added(DurableEvent, frozen=True):
    trial: str
    config: dict[str, Any]
    params: dict[str, Any]  # the searched values, by flat names
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
    """The trial has finished or failed. It stays so unless a person resumes or restarts it. ``error`` is empty if it
    finished."""

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
    """A trial that has not ended will not run again: the restore left it out."""

    trial: str
    answer: Answer | None = None


class Idled(DurableEvent, frozen=True):
    """Nothing was running, nothing could be started, and the scheduler was told so."""

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
    """How many results and ends this driver has delivered to callbacks."""

    count: int


class RunGone(Event, frozen=True):
    """All processes of a trial have exited, and its reports have been delivered."""

    trial: str
    error: str = ""
    was_stopped: bool = False  # the experiment or an outside request stopped it before its end


class StopAsked(Event, frozen=True):
    """A stop was requested: the driver ends, and the experiment can be resumed later."""

    why: str
    at_once: bool = False


class ClockLookedAt(Event, frozen=True):
    """A time budget may be used up."""


KINDS: dict[str, type[DurableEvent]] = {kind.__name__: kind for kind in DurableEvent.__subclasses__()}
for _kind in KINDS.values():
    Decoder(_kind)  # msgspec must know the type before two threads use it at the same time, or it crashes
