"""The interface for metrics and logs, which hear what happens in a run. An observer decides nothing and cannot disturb
the run."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.run.events import Event
from holdfast.core.run.state import RunState


class Observer(Protocol):
    """Called by the driver's loop: no method raises, waits, or costs more than microseconds."""

    def saw(self, event: Event, before: RunState, after: RunState) -> None:
        """An event is journalled, if it is to be, and has been stepped."""

    def warned(self, text: str) -> None:
        """A message for a person that does not stop the run."""


class Nobody:
    def saw(self, event: Event, before: RunState, after: RunState) -> None: ...
    def warned(self, text: str) -> None: ...
