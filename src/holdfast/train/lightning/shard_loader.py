"""Batches of a dataset's shard as a loader whose state Lightning saves: after the batches that steps were made with.

Lightning does not know how many batches there are, so it fetches one more than it trains on, to see which is the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.data.batch_iterables import Repeatable


class ShardLoader:
    """``take`` says that a step begins with the next batch that was fetched. If the loader does not ``wait`` for that,
    a batch counts as taken when it is fetched."""

    def __init__(self, batches: Repeatable, epoch_is_over: Callable[[], bool], waits: bool = True) -> None:
        self._batches, self._shard, self._epoch_is_over = batches, batches.shard, epoch_is_over
        self._waits = waits
        self._fetched: deque[dict[str, Any]] = deque()  # the states after the batches that wait for their step
        self._begun: dict[str, Any] = {}  # the state at the start of the pass
        self._state: dict[str, Any] = self._shard.state_dict()
        self._is_open, self._is_used = False, False

    def __iter__(self) -> Iterator[Any]:
        if self._is_open:
            self._leave()
        self._is_open, self._is_used, self._begun = True, False, self._shard.state_dict()
        for batch in self._batches:
            self._fetched.append(self._shard.state_dict())
            if not self._waits:
                self.take()
            yield batch
        self._is_open = False

    def _leave(self) -> None:
        """Lightning left a pass before its end. If no step was made in it, the pass begins again."""
        self._fetched.clear()
        if self._is_used:
            self._shard.set_epoch(self._shard.epoch + 1)
        else:
            self._shard.load_state_dict(self._begun)

    def take(self) -> None:
        if self._fetched:
            self._state, self._is_used = self._fetched.popleft(), True

    def state_dict(self) -> dict[str, Any]:
        if not self._epoch_is_over():
            return self._state
        if self._shard.state_dict()["left"] is not None:  # the epoch had fewer batches than the shard
            self._shard.set_epoch(self._shard.epoch + 1)
            self._is_open = False
        return self._shard.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._shard.load_state_dict(state_dict)
        self._state, self._is_open = state_dict, False
        self._fetched.clear()
