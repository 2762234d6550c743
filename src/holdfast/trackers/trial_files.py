"""Loggers that append to a file in each trial's directory, as long as this driver owns the experiment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.trial_callback import Trial


class AppendedFile:
    """Added lines stay in memory until they are flushed, so that a driver that has lost the experiment can drop
    them."""

    def __init__(self, path: Path, is_ours: Callable[[], bool]) -> None:
        self.path, self.is_ours = path, is_ours
        self._waiting: list[bytes] = []
        self._file = path.open("ab", buffering=0)

    def add(self, line: bytes) -> None:
        self._waiting.append(line)

    def flush(self) -> None:
        data = memoryview(b"".join(self._waiting))
        self._waiting.clear()
        if data and self.is_ours():
            while data:
                data = data[self._file.write(data) or 0 :]

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()


class Flushed(Protocol):
    def flush(self) -> None: ...
    def close(self) -> None: ...


File = TypeVar("File", bound=Flushed)
Appended = TypeVar("Appended", bound=AppendedFile)


class FilesOfTrials(LoggerCallback, Generic[File]):
    """A file for each trial. Results reach it at the end of each turn of the driver."""

    def __init__(self) -> None:
        self._files: dict[str, File] = {}
        self._unflushed: set[File] = set()

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        while self._unflushed:
            self._unflushed.pop().flush()

    def _done_with(self, file: File) -> None:
        self._unflushed.discard(file)
        file.close()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        self._unflushed.clear()
        while self._files:  # of trials that were left unfinished
            self._files.popitem()[1].close()


class TrialFileLogger(FilesOfTrials[Appended]):
    check_owner: Callable[[], None] | None = None  # raises if another driver has taken over the experiment

    @abstractmethod
    def _open(self, trial: Trial) -> Appended: ...

    def _is_ours(self) -> bool:
        try:
            if self.check_owner is not None:
                self.check_owner()
        except Exception:  # the driver gets the same error, and reports it
            return False
        return True

    def _file_of(self, trial: Trial) -> Appended:
        """The trial's file, to add lines to."""
        file = self._files.get(trial.trial_id)
        if file is None:
            file = self._files[trial.trial_id] = self._open(trial)
        self._unflushed.add(file)
        return file

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        file = self._files.pop(trial.trial_id, None)
        if file is not None:
            self._done_with(file)
