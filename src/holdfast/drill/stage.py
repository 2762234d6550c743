"""One run of a drill: a directory with the fault to inject, the run's storage, and the observations.

The setting ``HOLDFAST_WRAPPER`` names the directory to the driver and to all processes below it. A fault strikes once,
whatever is killed and restarted: the first process that reaches its address creates a file, and no other can.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from holdfast.drill import cluster_request
from holdfast.drill.faults import Fault
from holdfast.platform import processes
from holdfast.store.location import Location

SETTING = "HOLDFAST_WRAPPER"


class NodeShape(msgspec.Struct, frozen=True):
    """A number of nodes of a Ray cluster, each with these resources."""

    count: int
    resources: dict[str, float]
    labels: dict[str, str] = {}


class _Script(msgspec.Struct, frozen=True):
    fault: Fault | None


@dataclass(frozen=True)
class Stage:
    directory: Path

    @classmethod
    def build(cls, directory: Path, fault: Fault | None) -> Stage:
        stage = cls(directory)
        for path in (directory, stage.storage_dir, stage.records_dir, stage.attempts_dir, stage.temporary_dir):
            path.mkdir(parents=True)
        (directory / "stage.json").write_bytes(msgspec.json.encode(_Script(fault)))
        return stage

    @cached_property
    def fault(self) -> Fault | None:
        return msgspec.json.decode((self.directory / "stage.json").read_bytes(), type=_Script).fault

    @property
    def setting(self) -> str:
        """By which the processes of the run know the stage, and are known themselves."""
        return f"holdfast.drill.acting:{self.directory}"

    @property
    def storage_dir(self) -> Path:
        return self.directory / "storage"

    @property
    def records_dir(self) -> Path:
        return self.directory / "records"

    @property
    def attempts_dir(self) -> Path:
        return self.directory / "attempts"

    @property
    def temporary_dir(self) -> Path:
        return self.directory / "tmp"

    @property
    def output_file(self) -> Path:
        return self.directory / "output.txt"

    @property
    def storage(self) -> Location:
        """The storage of the script's runs, which replaces the script's own storage path."""
        if self.fault is not None and self.fault.kind.where == "storage":
            from holdfast.drill.far import FarLocation

            return FarLocation.at(self.storage_dir, self.directory)
        return Location.parse("(drill", self.storage_dir)

    def strike(self, step: int, attempt_number: int) -> bool:
        """Whether the fault strikes now: true for the first caller."""
        try:
            fd = os.open(self._strike_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        except FileExistsError:
            return False
        with open(fd, "w") as file:
            json.dump({"time": time.time(), "step": step, "attempt": attempt_number}, file)
        return True

    @property
    def is_struck(self) -> bool:
        return self._strike_file.exists()

    def struck(self) -> dict[str, Any] | None:
        """When and where the fault struck; None if it has not."""
        try:
            found: dict[str, Any] = json.loads(self._strike_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return found

    def is_on(self) -> bool:
        """Whether a fault that lasts some time has struck and is not over."""
        struck = self.struck()
        return struck is not None and self.fault is not None and time.time() < struck["time"] + self.fault.seconds

    @property
    def _strike_file(self) -> Path:
        return self.directory / "strike.json"

    def cut_file(self, node: str) -> Path:
        """When this file exists, the node is cut off."""
        return self.directory / f"cut-{node}"

    # A driver's requests to the drill: a Ray cluster, its nodes, and the end of one

    @property
    def wants_cluster(self) -> bool:
        return (self.directory / cluster_request.WANTED).exists()

    @property
    def cluster_address(self) -> str:
        """Empty if the run has no cluster from the drill."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / cluster_request.ADDRESS).read_text()
        return ""

    def say_cluster_address(self, address: str) -> None:
        if not self.cluster_address:
            self._write(cluster_request.ADDRESS, address)

    def say_cluster_failed(self, why: str) -> None:
        self._write(cluster_request.FAILED, why)

    def ask_for_nodes(self, shape: NodeShape) -> None:
        self._write(f"nodes-{time.monotonic_ns()}.wanted", msgspec.json.encode(shape).decode())

    def take_asked_nodes(self) -> Iterator[NodeShape]:
        for path in sorted(self.directory.glob("nodes-*.wanted")):
            yield msgspec.json.decode(path.read_bytes(), type=NodeShape)
            path.unlink()

    def ask_to_go(self, node: str, moment: float) -> None:
        """By Ray's name of the node; in UNIX seconds."""
        self._write(f"{node}.goes", str(moment))

    def take_asked_to_go(self) -> dict[str, float]:
        found = {path: float(path.read_text()) for path in self.directory.glob("*.goes")}
        for path in found:
            path.unlink()
        return {path.stem: moment for path, moment in found.items()}

    def _write(self, name: str, text: str) -> None:
        """Readers see the whole file or none."""
        half = self.directory / f"{name}.half"
        half.write_text(text)
        half.rename(self.directory / name)

    def note_attempt(self, run: str, attempt_number: int, facts: dict[str, Any]) -> None:
        """Called before the attempt's processes start."""
        self._attempt_file(run, attempt_number).write_text(json.dumps(facts))

    def attempt(self, run: str, attempt_number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._attempt_file(run, attempt_number).read_text())
        return found

    def _attempt_file(self, run: str, attempt_number: int) -> Path:
        return self.attempts_dir / f"{run}-{attempt_number}.json"

    def record_file(self, run: str, attempt_number: int, rank: int) -> Path:
        return self.records_dir / run / f"{attempt_number:04d}-{rank}.jsonl"

    def note_memory_group(self, attempt: Path) -> None:
        """A control group that a worker created for itself, and that must be removed later."""
        (self.directory / "memory-group").write_text(str(attempt))

    def remove_memory_group(self) -> None:
        note = self.directory / "memory-group"
        if note.exists():
            with contextlib.suppress(OSError):
                Path(note.read_text()).rmdir()


def marked(variable: str, value: object) -> list[int]:
    """The living processes in whose environment the variable has the value; none where the system does not say."""
    mark = f"{variable}={value}".encode()
    return [pid for pid in processes.pids() if mark in processes.environment(pid)]
