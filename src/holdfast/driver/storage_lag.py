"""How far storage is behind training: what waits for it, and since when. The core decides when workers wait."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.run import backpressure
from holdfast.core.run import events as ev
from holdfast.core.run.backpressure import Behind
from holdfast.core.run.state import RunState


class StorageLag:
    """``size`` returns how many bytes are staged for a report."""

    def __init__(self, limit_gb: float, size: Callable[[int, int], int], most_waiting: int) -> None:
        self._size, self._most = size, most_waiting
        self._limit = int(limit_gb * 1e9)
        self._since: dict[str, float] = {}
        self._told_at = 0.0
        self.behind = Behind()
        self.free: int | None = None  # bytes on the disk that staging fills, when it was measured last

    @property
    def wants_free_space(self) -> bool:
        return not self._limit and self.behind.bytes > 0

    def look(self, state: RunState, now: float) -> ev.StorageLags | None:
        """The event for the core, if there is anything new."""
        if not state.has_unsaved and not self._since:
            return None
        whole = [p for p in state.unsaved if state.is_whole(p)]
        if not whole and not self._since:
            return None
        self._since = {p.id: self._since.get(p.id, now) for p in whole}
        oldest = now - min(self._since.values(), default=now)
        self.behind = Behind(len(whole), sum(self._size(p.attempt_number, p.index) for p in whole), oldest)
        stalls = backpressure.must_wait(self.behind, state.stalled, self._limit, self.free, self._most)
        if stalls != state.stalled or backpressure.must_tell(self.behind, now, self._told_at):
            self._told_at = now
            return ev.StorageLags(stalls, *self.behind)
        return None
