"""The events of a run as JSON lines, in one file per driver in the run's directory: events/<time>-<pid>.jsonl.

Each line has time, level, event, run and message, and the fields of the event. A thread writes the lines, so the loop
never waits for a disk. For a run in an object store, the file is uploaded from time to time and at the end.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
from typing import Any

import msgspec

from holdfast.core.run import events as ev
from holdfast.core.run.state import RunState
from holdfast.store.growing_file import GrowingFile
from holdfast.store.location import Location
from holdfast.trackers.event_words import words

log = logging.getLogger(__name__)
DIRECTORY = "events"
_TOLD = (ev.WorkerReady, ev.WorkerReturned, ev.AttemptGone, ev.NodeDrains, ev.StacksTaken, ev.Verified)
_TROUBLE = (ev.ShardFailed, ev.UploadFailed, ev.CommitFailed, ev.WorkerFailed, ev.Damaged, ev.CapacityLacking)
_NAMED = {"generation": "attempt", "group_gone": "attempt_gone"}  # their values differ from those in the journal


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
        """The first line creates the file, because before that this driver does not own the run."""
        first = self._news.get()
        if first is None:
            return
        try:
            with GrowingFile(self._location, self._name) as file:
                entry: dict[str, Any] | None = first
                while entry is not None:
                    file.write(_line(entry))
                    entry = self._next(file)
        except Exception as error:
            log.warning("the event log stops here: %s", error)
            while self._news.get() is not None:
                pass

    def _next(self, file: GrowingFile) -> dict[str, Any] | None:
        while True:
            try:
                return self._news.get(timeout=file.due())
            except queue.Empty:
                file.upload()


def _line(entry: dict[str, Any]) -> str:
    at = entry["time"]
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1000):03}Z"
    return json.dumps({**entry, "time": stamp}, default=repr, ensure_ascii=False) + "\n"
