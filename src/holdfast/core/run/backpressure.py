"""When training waits for storage: how far behind storage may be, and when it has caught up."""

from __future__ import annotations

from typing import NamedTuple

MOST_WAITING = 64  # whole checkpoints, however small
TOLD_EVERY_S = 60.0  # a person is told again while one waits for longer than this


class Behind(NamedTuple):
    """Whole checkpoints that are not in storage yet, and since when the oldest of them waits."""

    checkpoints: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        many = "" if self.checkpoints == 1 else "s"
        return f"{self.checkpoints} checkpoint{many}, {self.bytes / 1e9:.3g} GB, the oldest for {self.seconds:.0f} s"


def must_wait(behind: Behind, already: bool, limit: int, free: int | None, most: int = MOST_WAITING) -> bool:
    """Whether reports with files wait. Complete checkpoints are uploaded without their workers, so they cannot wait
    forever.

    ``limit``: bytes that may wait; 0 for half of the space that staging could fill. ``free``: bytes, if known.
    """
    if not limit:
        limit = 1 << 62 if free is None else (free + behind.bytes) // 2
    if already:
        return behind.bytes > limit // 2 or behind.checkpoints > most // 2
    return behind.bytes > limit or behind.checkpoints > most


def must_tell(behind: Behind, now: float, told_at: float) -> bool:
    """Whether to tell a person again that storage is behind."""
    return behind.seconds > TOLD_EVERY_S and now > told_at + TOLD_EVERY_S
