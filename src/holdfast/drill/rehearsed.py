"""In a worker of a drill: run the train function as usual, record what it does, and inject the fault.

The worker's session is observed by replacing methods on this one object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast.drill import disk_faults, strikes
from holdfast.drill.faults import IN_REDUCTION, IN_UPDATE
from holdfast.drill.stage import Stage
from holdfast.drill.step_faults import StepFaults
from holdfast.drill.watching import Watch
from holdfast.store.staging import FileEntry, describe
from holdfast.worker.session import Files, Session, current


class Rehearsed:
    """The worker unpickles and runs this instead of the trainer's payload."""

    def __init__(self, stage: str, payload: bytes) -> None:
        self.stage, self.payload = stage, payload

    def __call__(self) -> Any:
        run: Callable[[], Any] = cloudpickle.loads(self.payload)
        RehearsedSession(Stage(Path(self.stage)), current()).begin()
        return run()


class RehearsedSession:
    def __init__(self, stage: Stage, session: Session) -> None:
        self._stage, self._session = stage, session
        attempt = stage.attempt(session.run_name, session.attempt_number)
        self._base, self._has_hang_timeout = int(attempt["base"]), bool(attempt["hang_timeout"])
        self._watch = Watch()
        self._asked = False
        self._opened = False
        self._step = 0
        self._is_first = True  # the report that comes next
        self._in_step: StepFaults | None = None

    def begin(self) -> None:
        session = self._session
        path = self._stage.record_file(session.run_name, session.attempt_number, session.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", buffering=1)
        fault = self._stage.fault
        if fault is not None and fault.point in (IN_REDUCTION, IN_UPDATE) and fault.rank == session.rank:
            self._in_step = StepFaults(self._watch, self._come_within_to)
        self._watch.install()
        disk_faults.install(self._stage)
        offer = session.resumed_from
        if offer is not None:
            self._await_reading(offer.id)
        report, newest, stage = session.report, session.current_checkpoint, session._store.stage

        def reporting(metrics: dict[str, Any], files: Any = None, **options: Any) -> None:
            self._step = self._base + session._reports + 1
            if self._in_step is not None:
                self._in_step.reports()
            self._note(files.directory if isinstance(files, Files) else None)
            self._come_to("before")
            report(metrics, files, **options)
            self._come_to("after")

        def asking() -> Any:
            self._asked = True
            return newest()

        def staging(source: Path, target: Path, move: bool) -> list[FileEntry]:
            entries = stage(source, target, move)
            self._come_to("staged")
            return entries

        for owner, name, instead in (
            (session, "report", reporting),
            (session, "current_checkpoint", asking),
            (session._store, "stage", staging),
        ):
            setattr(owner, name, instead)

    def _await_reading(self, id: str) -> None:
        """Python reports each file that is opened; a library that opens files itself is not seen."""
        inside = f"{os.sep}checkpoints{os.sep}{id}{os.sep}"

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open" and not self._opened and isinstance(args[0], (str, bytes)):
                self._opened = inside in os.path.abspath(os.fsdecode(args[0]))

        sys.addaudithook(hook)

    def _note(self, directory: str | None) -> None:
        """Before the report, so that every report has its note."""
        session, offer = self._session, self._session.resumed_from
        files = {entry.path: entry.digest for entry in describe(Path(directory))} if directory is not None else {}
        in_memory = session.memory is not None and session.memory.step >= 0
        record = {
            "step": self._step,
            "within": self._is_first and (in_memory or session._replaces),  # it has only the rest of the step's batches
            "time": time.time(),
            "offered": None if offer is None else offer.id,
            "asked": self._asked,
            "opened": self._opened,
            "files": files,
            "in_memory": session.memory is not None and bool(strikes.snapshots(session.memory.directory)),
            **self._watch.take(),
        }
        self._is_first = False
        self._file.write(json.dumps(record) + "\n")

    def _come_within_to(self, point: str) -> None:
        """A point within the work for the next report."""
        self._step = self._base + self._session._reports + 1
        self._come_to(point)

    def _come_to(self, point: str) -> None:
        fault, session = self._stage.fault, self._session
        if fault is None or fault.kind.where != "worker" or self._stage.is_struck:
            return
        if (point, session.rank) != (fault.point, fault.rank) or self._step < fault.step:
            return
        newest = session._newest
        if fault.name == "corruption" and (newest is None or not newest.directory):
            return  # at the first report for which there is one
        memory = session.memory.directory if session.memory is not None else ""
        if fault.name == "memory-corruption" and not strikes.snapshots(memory):
            return
        if self._stage.strike(self._step, session.attempt_number):
            print(f"holdfast drill: {fault} strikes", file=sys.stderr, flush=True)
            files = newest.directory if newest else ""
            strikes.strike(fault, self._stage, files, memory, self._has_hang_timeout)
