"""What all messages have in common."""

from __future__ import annotations

from msgspec import Struct


class Message(Struct, frozen=True, tag=True, array_like=True):
    pass
