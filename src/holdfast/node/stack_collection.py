"""Collects the stacks of an attempt's workers, within a bounded time, whatever state they are in."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from dataclasses import dataclass

from holdfast.platform import process_control, processes
from holdfast.worker.stack_dump import SIGNAL

_ANSWER_WITHIN_S = 2.0
_COMPLETE_AFTER_S = 0.1  # without another line
_LOOK_EVERY_S = 0.01
_STATES = {
    "T": "the process is stopped",
    "t": "the process is stopped by a debugger",
    "D": "the process hangs in the kernel, in uninterruptible sleep",
    "Z": "the process has ended",
    "X": "the process has ended",
    "": "the process has ended",
}


@dataclass
class Subject:
    """A worker that is asked."""

    rank: int
    pid: int | None  # None: it has not been forked yet; 0: it runs in this very process
    fd: int  # of the file that it writes to; ours to close
    before: int = 0  # how much was in the file before
    seen: int = 0
    seen_at: float = 0.0
    asked: bool = False

    def look(self) -> bool:
        """Whether the stacks are complete: nothing was added for a while."""
        size = os.fstat(self.fd).st_size
        if size != self.seen:
            self.seen, self.seen_at = size, time.monotonic()
        return size > self.before and time.monotonic() - self.seen_at >= _COMPLETE_AFTER_S

    def answer(self) -> str:
        data = os.pread(self.fd, os.fstat(self.fd).st_size - self.before, self.before)
        return data.decode("utf-8", "replace") or f"(no answer: {self._why_none()})\n"

    def _why_none(self) -> str:
        if self.pid is None:
            return "the process has not been forked yet"
        state = processes.state(self.pid)
        if state in _STATES:
            return _STATES[state]
        if not self.asked:
            return "the process has not come to the train function yet"
        where = processes.kernel_function(self.pid)
        return f"the process is in state {state}{f', in {where}' if where else ''}"


def collect(subjects: list[Subject]) -> dict[int, str]:
    """The stacks by rank; for a worker that does not write them, the reason."""
    try:
        for subject in subjects:
            subject.before = subject.seen = os.fstat(subject.fd).st_size
            _ask(subject)
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        open_ = [subject for subject in subjects if subject.asked]
        while open_ and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
            open_ = [s for s in open_ if not s.look() and (not s.pid or processes.state(s.pid) not in _STATES)]
        return {subject.rank: subject.answer() for subject in subjects}
    finally:
        for subject in subjects:
            os.close(subject.fd)


def _ask(subject: Subject) -> None:
    if subject.pid == 0:
        faulthandler.dump_traceback(subject.fd, all_threads=True)
        subject.asked = True
    elif subject.pid is not None and _listens(subject.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(subject.pid, SIGNAL)
            subject.asked = True


def _listens(pid: int) -> bool:
    """Whether the process handles the signal. Otherwise the signal would end it."""
    if not process_control.LINUX:
        return True
    return processes.catches(pid, SIGNAL)
