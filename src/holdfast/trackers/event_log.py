"""What happens in a run as JSON lines, in a file of each driver in the run's directory: events/<time>-<pid>.jsonl.

Each line has time, level, event, run and message, and what the event carries. A thread writes them, so that the loop
never waits for a disk; of a run in an object store the file is brought there every now and then, and at the end.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunState
from holdfast.errors import StorageError
from holdfast.store.location import Location
from holdfast.store.remote.parts import PartUploader
from holdfast.trackers.event_words import words

log = logging.getLogger(__name__)
DIRECTORY = "events"
_TOLD = (ev.WorkerReady, ev.WorkerReturned, ev.AttemptGone, ev.NodeDrains, ev.StacksTaken, ev.Verified)
_TROUBLE = (ev.ShardFailed, ev.UploadFailed, ev.CommitFailed, ev.WorkerFailed, ev.Damaged, ev.CapacityLacking)
_NAMED = {"generation": "attempt", "group_gone": "attempt_gone"}  # not as in the journal
_BRING_EVERY_S = 10.0
_PATIENCE_S = 10.0


class EventLog:
    def __init__(self, location: Location, run: str) -> None:
        self._run = run
        self._news: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._name = f"{DIRECTORY}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.jsonl"
        self._location = location
        self._thread = threading.Thread(target=self._write_all, name="holdfast-event-log", daemon=True)
        self._thread.start()

    def saw(self, event: ev.Event, before: RunState, after: RunState) -> None:
        if event.durable or isinstance(event, _TOLD):
            level = "warning" if isinstance(event, _TROUBLE) else "info"
            more = {_NAMED.get(name, name): value for name, value in msgspec.to_builtins(event).items()}
            self._say(level, type(event).__name__, words(event), more)
        failure = after.failure
        if failure is not None and failure is not before.failure:
            verdict = after.verdict.value if after.verdict is not None else None
            where = {"attempt": failure.attempt_number, "rank": failure.rank, "cause": failure.kind.value}
            self._say("error", "Failure", failure.text, {**where, "verdict": verdict})
        if after.phase is not before.phase:
            self._say("info", "Phase", after.phase.value, {"phase": after.phase.value})

    def warned(self, text: str) -> None:
        self._say("warning", "Warning", text, {})

    def close(self) -> None:
        self._news.put(None)
        self._thread.join()

    def _say(self, level: str, event: str, message: str, more: dict[str, Any]) -> None:
        about = {"time": time.time(), "level": level, "event": event, "run": self._run, "message": message}
        self._news.put({**about, **{key: value for key, value in more.items() if key not in about}})

    def _write_all(self) -> None:
        """The file is there with the first line: before that nobody has the run."""
        first = self._news.get()
        if first is None:
            return
        try:
            with _Place(self._location, self._name) as place:
                entry: dict[str, Any] | None = first
                while entry is not None:
                    place.write(entry)
                    entry = self._next(place)
        except Exception as error:
            log.warning("the log of events ends here: %s", error)
            while self._news.get() is not None:
                pass

    def _next(self, place: _Place) -> dict[str, Any] | None:
        while True:
            try:
                return self._news.get(timeout=place.due())
            except queue.Empty:
                place.bring()


class _Place:
    """The file: in the run's directory, or in a temporary one from which it is brought to the run's storage."""

    def __init__(self, location: Location, name: str) -> None:
        self._temporary = tempfile.mkdtemp(prefix="holdfast-events-") if location.takes_uploads else ""
        root = Path(location.directory_here(self._temporary))
        self._path = root / name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "a", encoding="utf-8", errors="backslashreplace")
        self._objects = location.open(_PATIENCE_S) if self._temporary else None
        self._uploader = PartUploader(self._objects, name, self._path) if self._objects is not None else None
        self._brought = time.monotonic()

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._objects is not None:
            self.bring()
            self._objects.close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def write(self, entry: dict[str, Any]) -> None:
        at = entry["time"]
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03}Z"
        self._file.write(json.dumps({**entry, "time": stamp}, default=repr, ensure_ascii=False) + "\n")
        self._file.flush()
        if self.due() == 0:
            self.bring()

    def due(self) -> float | None:
        """In how many seconds it is to be brought; None for never."""
        if self._uploader is None:
            return None
        return max(0.0, self._brought + _BRING_EVERY_S - time.monotonic())

    def bring(self) -> None:
        """Storage that does not answer now may do so the next time."""
        self._brought = time.monotonic()
        if self._uploader is None:
            return
        try:
            self._uploader.sync()
        except StorageError as error:
            log.debug("the log of events could not be brought to storage: %s", error)
