"""A run in an object store, as the commands look at it. Nothing is copied, and only what is asked for is fetched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from holdfast.cli import runs
from holdfast.cli.lease_probe import LivingDriver
from holdfast.cli.paths import READ_PATIENCE_S
from holdfast.errors import CheckpointDamagedError, ObjectMissingError
from holdfast.runs.history import counted
from holdfast.store.checkpoints import Manifest, parse_manifest
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.metrics import parse_line
from holdfast.store.objects.base import ObjectInfo
from holdfast.store.remote import journal, runfile, sequence
from holdfast.store.remote.checkpoints import RemoteCheckpoints
from holdfast.store.remote.fetch import get_all
from holdfast.store.remote.lease import living_holder
from holdfast.store.remote.parts import files_of
from holdfast.store.sealed import Damage

_layout = RunLayout(Path())  # of keys


class RemoteRun:
    def __init__(self, location: Location) -> None:
        self.location = location
        self._objects = location.open(READ_PATIENCE_S)
        self._checkpoints = RemoteCheckpoints(self._objects)

    def driver(self) -> LivingDriver | None:
        holder = living_holder(self._objects)
        return None if holder is None else LivingDriver(holder.pid, holder.host, holder.since)

    def run_file_damage(self) -> list[Damage]:
        return runs.run_file_damage(partial(runfile.read, self._objects))

    def journal(self) -> tuple[list[Record], list[Damage]]:
        return journal.read(self._objects)

    def journal_files(self) -> int:
        return len(self._objects.list(sequence.DIRECTORY))

    def manifests(self) -> tuple[list[Manifest], list[Damage]]:
        """Without those that landed too late to count: the next driver clears them away."""
        listing = self._checkpoints.listing()  # before the journal: what is deleted in between is no damage
        records, journal_damage = self.journal()
        counts = counted(records)
        with_files = set(listing.directories)
        manifests: list[Manifest] = []
        damage: list[Damage] = []
        keys = [_manifest_key(id) for id in listing.committed]
        for id, key, line in zip(listing.committed, keys, get_all(self._objects, keys), strict=True):
            if line is None:
                continue
            try:
                manifest = parse_manifest(id, line, f"{self.location}/{key}")
            except CheckpointDamagedError as error:
                damage.append(Damage(key, "file", str(error)))
                continue
            if not counts(id, manifest.epoch) and not journal_damage:
                continue
            if id in with_files or all(entry.at for entry in manifest.files):
                manifests.append(manifest)
            else:
                damage.append(Damage(key, "file", "its directory is missing"))
        return sorted(manifests, key=lambda manifest: (manifest.report, manifest.id)), damage

    def has_manifest(self, id: str) -> bool:
        return get_all(self._objects, [_manifest_key(id)]) != [None]

    def verify(self, id: str) -> None:
        self._checkpoints.verify(id)

    def quarantined(self) -> list[tuple[str, str]]:
        ids = self._checkpoints.listing().quarantined
        reasons = get_all(self._objects, [f"{_manifest_key(id)}.damaged.txt" for id in ids])
        texts = [(why or b"").decode(errors="replace").strip() for why in reasons]
        return [(id, why or runs.NO_REASON) for id, why in zip(ids, texts, strict=True)]

    def metrics_files(self) -> list[str]:
        return runs.metrics_files(files_of(info.key for info in self._objects.list("metrics/")))

    def read_metrics(self, file: str) -> tuple[int, list[Damage]]:
        """What follows the last end of a line is on its way here, or was lost with its driver's machine."""
        count, rest, before = 0, b"", 0
        damage: list[Damage] = []
        for part in self._parts(file):
            *lines, rest = (rest + self._objects.get(part.key)).split(b"\n")
            for number, line in enumerate(lines, start=before + 1):
                if parse_line(line) is not None:
                    count += 1
                elif line:
                    damage.append(Damage(file, f"line {number}", "it is not an intact report"))
            before += len(lines)
        return count, damage

    def metrics_backwards(self, generation: int) -> Iterator[bytes]:
        parts = self._parts(_layout.metrics_file(generation, 0).as_posix())
        return runs.lines_backwards(self._objects.get(part.key) for part in reversed(parts))

    def attempts(self) -> list[int]:
        return runs.numbers(runs.ATTEMPT, map(_name, self._objects.level("logs/").directories))

    def ranks(self, attempt: int) -> list[int]:
        level = self._objects.level(f"{_log_key(attempt, 0).rpartition('/')[0]}/")
        return runs.numbers(runs.LOG, (_name(info.key) for info in level.objects))

    def log(self, attempt: int, rank: int, start: int) -> Iterator[bytes]:
        for part in self._parts(_log_key(attempt, rank)):
            if start < part.size:
                with contextlib.suppress(ObjectMissingError):
                    yield self._objects.get(part.key)[start:]
            start = max(0, start - part.size)

    def _parts(self, file: str) -> list[ObjectInfo]:
        """The objects that a file which grows is stored as, in order."""
        there = {info.key: info for info in self._objects.list(f"{file.rpartition('/')[0]}/")}
        return [there[key] for key in files_of(there).get(file, [])]


def _manifest_key(id: str) -> str:
    return _layout.manifest_file(id).as_posix()


def _log_key(attempt: int, rank: int) -> str:
    return _layout.log_file(attempt, rank).as_posix()


def _name(key: str) -> str:
    return key.rpartition("/")[2]
