"""Stored times: another program may have written them, so they may be invalid."""

from __future__ import annotations

import time

_END = 253_402_300_800.0  # the year 10000, which no calendar class can represent


def is_time(seconds: object) -> bool:
    """Whether these are seconds since 1970 that have a date."""
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < _END


def utc_text(seconds: float) -> str:
    """The time for people; empty if it is invalid."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if is_time(seconds) else ""
