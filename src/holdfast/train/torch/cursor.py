"""The position of training in its data: an epoch, and the samples of it that all ranks together have consumed.

It counts what the training loop received, never what was prefetched, and only whole global batches: the gradients of
half a batch are in no checkpoint. It is the same on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Cursor:
    epoch: int = 0
    consumed: int = 0
    begun: bool = False  # the epoch was iterated, if only in part, since it was set or loaded

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; where a state was loaded that is within this epoch, stay there."""
        if self.begun or epoch != self.epoch:
            self._turn_to(epoch)

    def begin(self) -> None:
        """Start an iteration: of the epoch that was set or loaded, otherwise of the next one."""
        if self.begun:
            self._turn_to(self.epoch + 1)
        self.begun = True

    def finish(self) -> None:
        self._turn_to(self.epoch + 1)

    def load(self, epoch: int, consumed: int) -> None:
        self.epoch, self.consumed, self.begun = epoch, consumed, False

    def _turn_to(self, epoch: int) -> None:
        self.load(epoch, 0)
