"""The driver's interface to the display of a run. It decides nothing and does not depend on a terminal; ``ui/``
implements it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Display(Protocol):
    """The events for a display. No method raises, waits for a terminal, or costs more than microseconds."""

    def start(self, run_name: str, path: str, resumed: str | None) -> None:
        """The run begins, or resumes from the checkpoint ``resumed``."""

    def state(self, name: str, detail: str = "") -> None:
        """The run is now "starting", "running", "recovering", "stopping", ...: see ``showing.phase_in_words``."""

    def attempt(
        self, attempt_number: int, world_size: int, joined: Sequence[str] = (), left: Sequence[str] = ()
    ) -> None:
        """An attempt was started. ``joined``: nodes that the last attempt did not have. ``left``: nodes that only the
        last attempt had."""

    def workers(self, status: Mapping[int, str]) -> None:
        """Each rank is "starting", "running", "returned" or "dead"."""

    def progress(self, reports: int, metrics: Mapping[str, Any] | None) -> None:
        """The number of reports in the surviving history has changed; ``metrics`` are the newest."""

    def checkpoint(self, id: str, report: int) -> None:
        """The checkpoint is committed now."""

    def pending(self, count: int, size: int = 0) -> None:
        """This many checkpoints, with this many bytes, are staged and not committed yet."""

    def failure(self, text: str, action: str, rank: int = -1) -> None:
        """A failure, the reaction to it, and the rank that failed (-1: no rank)."""

    def warning(self, text: str) -> None:
        """Something that a person should know and that does not stop the run."""

    def output(self, rank: int, line: str) -> None:
        """A line that a worker printed. Any text."""

    def finish(self, outcome: str, text: str) -> None:
        """The run is "finished", "failed" or "stopped". Gives the terminal back; later calls do nothing."""


class OffDisplay:
    """Shows nothing. Warnings go to the log: they are about work that may be lost."""

    def start(self, run_name: str, path: str, resumed: str | None) -> None: ...
    def state(self, name: str, detail: str = "") -> None: ...
    def attempt(
        self, attempt_number: int, world_size: int, joined: Sequence[str] = (), left: Sequence[str] = ()
    ) -> None: ...
    def workers(self, status: Mapping[int, str]) -> None: ...
    def progress(self, reports: int, metrics: Mapping[str, Any] | None) -> None: ...
    def checkpoint(self, id: str, report: int) -> None: ...
    def pending(self, count: int, size: int = 0) -> None: ...
    def failure(self, text: str, action: str, rank: int = -1) -> None: ...
    def output(self, rank: int, line: str) -> None: ...
    def finish(self, outcome: str, text: str) -> None: ...

    def warning(self, text: str) -> None:
        log.warning("%s", text)
