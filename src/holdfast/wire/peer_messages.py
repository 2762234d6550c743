"""How the driver checks whether nodes reach each other: one opens a port, and the others connect to it."""

from __future__ import annotations

from .message import Message


class Probe(Message, frozen=True, tag=True):
    """Check whether the machine is fit for training."""


class OpenDoor(Message, frozen=True, tag=True):
    """Open a port for another node, to test whether the two reach each other. The answer is ``DoorOpen``."""

    meeting: int
    address: str  # the address at which other nodes reach this one


class Meet(Message, frozen=True, tag=True):
    """Connect to the port of another node. The answer is ``Met``."""

    meeting: int
    address: str
    port: int
    token: bytes


class Probed(Message, frozen=True, tag=True):
    ok: bool
    findings: list[str]  # what is wrong with the machine


class DoorOpen(Message, frozen=True, tag=True):
    meeting: int
    port: int
    token: bytes
    error: str = ""


class Met(Message, frozen=True, tag=True):
    meeting: int
    error: str = ""  # why the two cannot reach each other; empty if they can
