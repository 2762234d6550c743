"""What the experiment's machine asks for."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.experiment import events as ev


class Command(Struct, frozen=True):
    pass


class Decide(Command, frozen=True):
    event: ev.Event


class Run(Command, frozen=True):
    trial: str


class StopRun(Command, frozen=True):
    """End a trial's processes, with what it has reported safe."""

    trial: str


class LetGoOn(Command, frozen=True):
    """The trial may go on behind its reports up to this one: no decision can come before the next."""

    trial: str
    until: int


class FailFast(Command, frozen=True):
    """Let go of everything: a trial has failed, and the person wants to know."""

    trial: str
