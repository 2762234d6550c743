"""What a run publishes for other programs: numbers for Prometheus, and an event log as JSON lines.

Both are off unless a setting turns them on. Their errors never fail the run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.run.events import Event
    from holdfast.core.run.observer import Observer
    from holdfast.core.run.state import RunState
    from holdfast.store.location import Location

log = logging.getLogger(__name__)


@contextlib.contextmanager
def observing(name: str, location: Location, *, port: int, host: str, event_log: bool) -> Iterator[Observer | None]:
    """The requested outputs while the run lasts: an endpoint, unless the port is 0, and a log. None if neither was
    requested."""
    with contextlib.ExitStack() as stack:
        observers: list[Observer] = []
        if port:
            try:
                import prometheus_client  # noqa: F401
            except ImportError as error:
                raise ImportError(
                    "HOLDFAST_METRICS_PORT needs prometheus_client: pip install 'holdfast[prometheus]'"
                ) from error
            from holdfast.trackers.prometheus import serving
            from holdfast.trackers.run_meter import Meter

            meter = Meter(name)
            stack.enter_context(serving(meter, host, port))
            observers.append(meter)
        if event_log:
            from holdfast.trackers.event_log import EventLog

            observers.append(stack.enter_context(contextlib.closing(EventLog(location, name))))
        yield _All(observers) if observers else None


class _All:
    """Passes events to all outputs. One that fails is turned off."""

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = observers

    def saw(self, event: Event, before: RunState, after: RunState) -> None:
        for observer in self._observers:
            try:
                observer.saw(event, before, after)
            except Exception as error:
                self._leave_out(observer, error)

    def warned(self, text: str) -> None:
        for observer in self._observers:
            try:
                observer.warned(text)
            except Exception as error:
                self._leave_out(observer, error)

    def _leave_out(self, observer: Observer, error: Exception) -> None:
        self._observers = [other for other in self._observers if other is not observer]
        log.warning("%s failed and was turned off: %r", type(observer).__name__, error)
