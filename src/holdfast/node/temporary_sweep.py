"""Temporary files of processes that have exited: removed, unless they belong to a user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.platform import process_control
from holdfast.worker.temporary import remove_temporary_files

_EXITED_WITHIN_S = 2.0  # how long killed processes are waited for when the agent ends


class TemporarySweep:
    """``submit`` runs what takes long beside the loop."""

    def __init__(self, env: Mapping[bytes, bytes], submit: Callable[[Callable[[], None]], None]) -> None:
        self._env, self._submit = env, submit
        self._marks: dict[int, str] = {}  # the marks of processes whose files may still exist, by pid

    def began(self, pid: int, mark: str) -> None:
        self._marks[pid] = mark

    def returned(self, pid: int) -> None:
        """The worker returned: the files that it leaves belong to the user."""
        self._marks.pop(pid, None)

    def ended(self, pid: int) -> None:
        if pid in self._marks:
            self._submit(lambda: self._sweep(pid))

    def finish(self) -> None:
        """Remove the files of all remaining processes, as soon as these have exited."""
        deadline = time.monotonic() + _EXITED_WITHIN_S
        for pid in list(self._marks):
            while pid and not process_control.is_ending(pid) and time.monotonic() < deadline:
                time.sleep(0.002)
            self._sweep(pid)

    def _sweep(self, pid: int) -> None:
        mark = self._marks.get(pid)
        if pid and mark is not None:
            remove_temporary_files(pid, mark, self._env)
        self._marks.pop(pid, None)
