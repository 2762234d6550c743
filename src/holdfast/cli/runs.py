"""A run as the commands look at it, wherever it is stored. Each question is asked of the storage anew."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from holdfast.cli.lease_probe import LivingDriver, living_driver
from holdfast.cli.paths import READ_PATIENCE_S, TrialLocation
from holdfast.errors import StorageError, StorageUnavailableError
from holdfast.runs.history import read_identity
from holdfast.store import journal, runfile
from holdfast.store.checkpoints import CheckpointStore, Manifest
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.metrics import read_metrics
from holdfast.store.regular import LINE, open_regular, read_whole
from holdfast.store.sealed import Damage

NO_REASON = "the reason was not written down"
ATTEMPT = re.compile(r"attempt-(\d+)")
LOG = re.compile(r"rank-(\d+)\.log")
_METRICS = re.compile(r"metrics/attempt-(\d+)/rank-(\d+)\.jsonl")
_BLOCK = 1 << 16
_REASON = 1 << 20  # bytes


class Run(Protocol):
    @property
    def location(self) -> Location: ...

    def driver(self) -> LivingDriver | None: ...

    def run_file_damage(self) -> list[Damage]: ...

    def journal(self) -> tuple[list[Record], list[Damage]]: ...

    def journal_files(self) -> int: ...

    def manifests(self) -> tuple[list[Manifest], list[Damage]]:
        """Of the checkpoints that count, by report number; their files are not looked into."""

    def has_manifest(self, id: str) -> bool: ...

    def verify(self, id: str) -> None:
        """CheckpointDamagedError if a file is not what the manifest says."""

    def quarantined(self) -> list[tuple[str, str]]:
        """The checkpoints that were set aside, with the reason."""

    def metrics_files(self) -> list[str]: ...

    def read_metrics(self, file: str) -> tuple[int, list[Damage]]:
        """How many intact reports it has, and what is wrong with the rest."""

    def metrics_backwards(self, generation: int) -> Iterator[bytes]:
        """The lines of rank 0's reports, the last one first."""

    def attempts(self) -> list[int]:
        """Those that have logs."""

    def ranks(self, attempt: int) -> list[int]: ...

    def log(self, attempt: int, rank: int, start: int) -> Iterator[bytes]:
        """What a log has from that byte on, in pieces."""


def open_run(location: Location) -> Run:
    """NewerFormatError if a newer version of Holdfast has written the run."""
    run = _open(location)
    run.run_file_damage()
    return run


def _open(location: Location) -> Run:
    if isinstance(location, TrialLocation):
        from holdfast.cli.trials import open_trial

        return open_trial(location)
    if location.path is not None:
        return LocalRun(location)
    from holdfast.cli.remote_runs import RemoteRun

    return RemoteRun(location)


class LocalRun:
    def __init__(self, location: Location) -> None:
        assert location.path is not None
        self.location = location
        self._layout = RunLayout(location.path)
        self._checkpoints = CheckpointStore(self._layout)

    def driver(self) -> LivingDriver | None:
        return living_driver(self._layout)

    def run_file_damage(self) -> list[Damage]:
        return run_file_damage(partial(runfile.read, self._layout))

    def journal(self) -> tuple[list[Record], list[Damage]]:
        return journal.read(self._layout)

    def journal_files(self) -> int:
        return len(self._layout.segments())

    def manifests(self) -> tuple[list[Manifest], list[Damage]]:
        manifests, damage = self._checkpoints.scan()
        return manifests, [d for d in damage if (self._layout.root / d.path).exists()]

    def has_manifest(self, id: str) -> bool:
        return self._layout.manifest_file(id).exists()

    def verify(self, id: str) -> None:
        self._checkpoints.verify(id)

    def quarantined(self) -> list[tuple[str, str]]:
        found = []
        for path in sorted(self._layout.checkpoints_dir.glob("*.json.damaged")):
            id = path.name.removesuffix(".json.damaged")
            try:
                why = read_whole(self._layout.quarantine_reason_file(id), _REASON).decode(errors="replace").strip()
            except OSError:
                why = ""
            found.append((id, why or NO_REASON))
        return found

    def metrics_files(self) -> list[str]:
        return metrics_files(self._layout.relative(path) for path in self._layout.metrics_dir.glob("*/*"))

    def read_metrics(self, file: str) -> tuple[int, list[Damage]]:
        rows, damage = read_metrics(self._layout, *_numbers_in(file))
        return len(rows), damage

    def metrics_backwards(self, generation: int) -> Iterator[bytes]:
        return lines_backwards(_blocks_backwards(self._layout.metrics_file(generation, 0)))

    def attempts(self) -> list[int]:
        return numbers(ATTEMPT, _names(self._layout.logs_dir))

    def ranks(self, attempt: int) -> list[int]:
        return numbers(LOG, _names(self._layout.log_file(attempt, 0).parent))

    def log(self, attempt: int, rank: int, start: int) -> Iterator[bytes]:
        try:
            file = open_regular(path := self._layout.log_file(attempt, rank))
        except FileNotFoundError:
            return
        except PermissionError:
            raise
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from error
        with file:
            file.seek(start)
            while block := file.read(_BLOCK):
                yield block


def identity(run: Run) -> dict[str, Any]:
    """What run.json or its copy says; empty if both are lost, which is then among the damage."""
    if isinstance(run.location, TrialLocation):
        from holdfast.cli.trials import identity_of

        return identity_of(run.location)
    try:
        return read_identity(run.location, READ_PATIENCE_S)
    except StorageUnavailableError:
        raise
    except StorageError:
        return {}


def run_file_damage(read: Callable[[], object]) -> list[Damage]:
    try:
        read()
    except StorageUnavailableError:
        raise
    except StorageError as error:
        return [Damage("run.json", "file", str(error))]
    return []


def metrics_files(paths: Iterable[str]) -> list[str]:
    return sorted(filter(_METRICS.fullmatch, paths), key=_numbers_in)


def numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    return sorted(int(match[1]) for match in map(pattern.fullmatch, names) if match)


def lines_backwards(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file whose blocks come from its end; one that is too long for a report comes as an empty one."""
    rest: list[bytes] = []  # of the line whose beginning has not come yet, from its end
    size = 0
    for block in blocks:
        first, *lines = block.split(b"\n")
        if lines:
            rest.append(lines.pop())
            yield _joined(rest, size + len(rest[-1]))
            yield from reversed(lines)
            rest, size = [], 0
        size += len(first)
        rest.append(first)
        if size > LINE:
            rest.clear()
    yield _joined(rest, size)


def _joined(backwards: list[bytes], size: int) -> bytes:
    return b"".join(reversed(backwards)) if size <= LINE else b""


def _blocks_backwards(path: Path) -> Iterator[bytes]:
    try:
        file = open_regular(path)
    except PermissionError:
        raise
    except OSError:
        return  # verify names it
    with file:
        position = file.seek(0, io.SEEK_END)
        while position:
            size = min(_BLOCK, position)
            position = file.seek(position - size)
            yield file.read(size) or b""


def _numbers_in(file: str) -> tuple[int, int]:
    match = _METRICS.fullmatch(file)
    assert match is not None
    return int(match[1]), int(match[2])


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []
