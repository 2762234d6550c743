"""How far storage is behind training: what waits for it, and when reports have to wait too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunState

_MOST_WAITING = 64  # whole checkpoints, however small
_TOLD_EVERY_S = 60.0  # while one waits for longer than that


class Behind(NamedTuple):
    """Whole checkpoints that are not in storage yet, and since when the oldest of them waits."""

    checkpoints: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        many = "" if self.checkpoints == 1 else "s"
        return f"{self.checkpoints} checkpoint{many}, {self.bytes / 1e9:.3g} GB, the oldest for {self.seconds:.0f} s"


class Lag:
    """``size`` tells how many bytes are staged for a report; ``where`` is the disk that they fill."""

    def __init__(self, where: Callable[[], Path], limit_gb: float, size: Callable[[int, int], int]) -> None:
        self._where, self._size = where, size
        self._limit = int(limit_gb * 1e9)
        self._since: dict[str, float] = {}
        self._told_at = 0.0
        self.behind = Behind()

    def look(self, state: RunState) -> ev.StorageLags | None:
        """The news that the machine is to have of it, if there are any."""
        whole = [p for p in state.unsaved if state.is_whole(p)]
        if not whole and not self._since:
            return None
        now = time.monotonic()
        self._since = {p.id: self._since.get(p.id, now) for p in whole}
        oldest = now - min(self._since.values(), default=now)
        self.behind = Behind(len(whole), sum(self._size(p.generation, p.index) for p in whole), oldest)
        if self._stalls(state.stalled) != state.stalled:
            return self._news(not state.stalled, now)
        if oldest > _TOLD_EVERY_S and now > self._told_at + _TOLD_EVERY_S:
            return self._news(state.stalled, now)
        return None

    def _stalls(self, already: bool) -> bool:
        """What is whole gets to storage without its workers, so they cannot wait for ever."""
        limit = self._limit or self._half_of_free_space()
        if already:
            return self.behind.bytes > limit // 2 or self.behind.checkpoints > _MOST_WAITING // 2
        return self.behind.bytes > limit or self.behind.checkpoints > _MOST_WAITING

    def _half_of_free_space(self) -> int:
        if self.behind.bytes == 0:
            return 0
        try:
            found = os.statvfs(self._where())
        except OSError:
            return 1 << 62
        return (found.f_bavail * found.f_frsize + self.behind.bytes) // 2

    def _news(self, stalled: bool, now: float) -> ev.StorageLags:
        self._told_at = now
        return ev.StorageLags(stalled, *self.behind)
