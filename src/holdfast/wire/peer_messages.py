"""How the driver finds out whether nodes reach each other: one opens a port, the others connect to it."""

from __future__ import annotations

from .message import Message


class Probe(Message, frozen=True, tag=True):
    """Say whether the machine is fit to train on."""


class OpenDoor(Message, frozen=True, tag=True):
    """Let another node of the run call, so that the two see whether they can talk; answered with ``DoorOpen``."""

    meeting: int
    address: str  # the node's own, as others know it


class Meet(Message, frozen=True, tag=True):
    """Call another node's door; answered with ``Met``."""

    meeting: int
    address: str
    port: int
    token: bytes


class Probed(Message, frozen=True, tag=True):
    ok: bool
    findings: list[str]  # the problem


class DoorOpen(Message, frozen=True, tag=True):
    meeting: int
    port: int
    token: bytes
    error: str = ""


class Met(Message, frozen=True, tag=True):
    meeting: int
    error: str = ""  # why the two cannot talk
