"""The commands of the experiment's step."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.experiment import events as ev


class Command(Struct, frozen=True):
    pass


class Journal(Command, frozen=True):
    """Journal the event. The commands after this one are carried out when it is durable."""

    event: ev.Event


class Decide(Command, frozen=True):
    """Process this event, which the core itself has decided."""

    event: ev.Event


class Adopt(Command, frozen=True):
    """Copy the checkpoint that ``Exploited`` names to its trial, which is not running."""

    trial: str


class Run(Command, frozen=True):
    trial: str


class StopRun(Command, frozen=True):
    """End a trial's processes after its reports are safe."""

    trial: str


class LetContinue(Command, frozen=True):
    """Up to this report the trial may continue without waiting, because no decision can come earlier."""

    trial: str
    until: int


class Interrupt(Command, frozen=True):
    """End all processes and leave the trials unfinished, to be resumed later."""

    why: str
    at_once: bool = False


class Finish(Command, frozen=True):
    """Nothing is left to do."""
