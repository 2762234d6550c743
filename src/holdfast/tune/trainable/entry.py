"""From a user's trainable to the function that a trial's process calls."""

from __future__ import annotations

from typing import Any

from holdfast.train.config import CheckpointConfig

from .class_loop import ClassEntry, class_entry
from .function import FunctionEntry, function_entry


def entry_of(
    trainable: Any, checkpoint: CheckpointConfig, stop: Any = None, *, may_pause: bool = False, may_stop: bool = False
) -> FunctionEntry | ClassEntry:
    """A picklable callable of the trial's config. The trainable, a function or a class, is checked. ``stop`` is
    ``RunConfig(stop=...)``: a class saves at its end, and must know of it, and whether its scheduler may pause or stop
    it."""
    frequency, at_end = checkpoint.checkpoint_frequency, checkpoint.checkpoint_at_end
    if isinstance(trainable, type):
        return class_entry(trainable, frequency, at_end, stop, may_pause, may_stop)
    if frequency or at_end:
        raise ValueError(
            f"CheckpointConfig(checkpoint_frequency={frequency}, checkpoint_at_end={at_end}): a function saves when it "
            "calls report(metrics, checkpoint=…); leave these out, or use a class Trainable"
        )
    return function_entry(trainable)
