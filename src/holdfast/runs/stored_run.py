"""A run as it is stored, wherever that is, living or dead. Nothing else reads it. Nothing is cached: each question is
asked of the storage again, and ``read`` takes one look that stays as it is.

A driver may be writing meanwhile. So manifests are read before the journal, and damage counts only if a second look
finds it too: what was deleted, or half written, at the first look must not pass for damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ParamSpec

import msgspec

from holdfast.errors import StorageError, StorageUnavailableError
from holdfast.store.interfaces import LivingDriver, RunStore
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest
from holdfast.store.regular import LINE
from holdfast.store.run_at import run_at
from holdfast.store.sealed import Damage

from .past import Past, read_past
from .reading import Reading

PATIENCE_S = 60.0
_ATTEMPT = re.compile(r"attempt-(\d+)")
_LOG = re.compile(r"logs/attempt-\d+/rank-(\d+)\.log")
_RANK = re.compile(r"^rank (\d+)$", re.MULTILINE)
_METRICS = re.compile(r"metrics/attempt-(\d+)/rank-(\d+)\.jsonl")
_layout = RunLayout(Path())  # of paths in the run
_P = ParamSpec("_P")


class StoredRun:
    def __init__(self, location: Location, patience_s: float = PATIENCE_S, store: RunStore | None = None) -> None:
        self.location, self.patience_s = location, patience_s
        if store is not None:
            self.store = store

    @cached_property
    def store(self) -> RunStore:
        return run_at(self.location, self.patience_s)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "store"}  # it has connections

    def read(self, *, with_driver: bool = True, with_manifests: bool = True) -> Reading:
        driver = self.driver() if with_driver else None
        manifests = self.manifests()[0] if with_manifests else []
        records, damage = self.journal()
        return Reading(self, driver, manifests, records, self.past(records, damage))

    def driver(self) -> LivingDriver | None:
        return self.store.living_driver()

    def identity(self) -> dict[str, Any]:
        """What run.json says; if that is damaged, the copy in the journal. NotARunError if there is no run."""
        try:
            return self.store.read_identity()
        except StorageUnavailableError:
            raise
        except StorageError:
            identity = self.past(self.store.read_journal()[0]).identity
            if identity is None:
                raise
            return identity

    def known_identity(self) -> dict[str, Any]:
        """Empty if it is lost, which is then among the damage."""
        try:
            return self.identity()
        except StorageUnavailableError:
            raise
        except StorageError:
            return {}

    def journal(self) -> tuple[list[Record], list[Damage]]:
        return self.store.read_journal()

    def journal_size(self) -> int:
        """In bytes: as long as it stays the same, so does the journal."""
        return self.store.total_size("journal")

    def records(self) -> list[Record]:
        return self.journal()[0]

    def past(self, records: list[Record], damage: Iterable[Damage] = ()) -> Past:
        try:
            return read_past(records, bool(damage))
        except msgspec.ValidationError as error:
            raise StorageError(
                f"This version of Holdfast cannot read the journal of {self.location} ({error}). "
                "Upgrade Holdfast: pip install --upgrade holdfast"
            ) from error

    # Checkpoints

    def manifests(self) -> tuple[list[Manifest], list[Damage]]:
        """Of the checkpoints that count, by report number; their files are not looked into."""
        return self.store.checkpoints.scan(lambda: self.past(*self.journal()).counts)

    def verify(self, id: str) -> None:
        """CheckpointDamagedError if a file is not what the manifest says."""
        self.store.checkpoints.verify(id)

    def has_manifest(self, id: str) -> bool:
        return self.store.checkpoints.has_manifest(id)

    def quarantined(self) -> list[tuple[str, str]]:
        return self.store.checkpoints.quarantined()

    # Reports and logs

    def reports(self, attempt_number: int, rank: int = 0) -> list[dict[str, Any]]:
        """All that a rank reported in an attempt: index, time and metrics of each."""
        return self.store.reports(_layout.metrics_file(attempt_number, rank).as_posix())[0]

    def reports_backwards(self, attempt_number: int) -> Iterator[bytes]:
        """The lines of rank 0's reports, the last one first."""
        return _lines_backwards(self.store.read_backwards(_layout.metrics_file(attempt_number, 0).as_posix()))

    def report_bytes(self, attempt_number: int, start: int) -> Iterator[bytes]:
        """What the file of rank 0's reports has from that byte on, in pieces: lines for ``parse_line``."""
        return self.store.read(_layout.metrics_file(attempt_number, 0).as_posix(), start)

    def reports_size(self, attempt_number: int) -> int:
        return self.store.size(_layout.metrics_file(attempt_number, 0).as_posix())

    def metrics_files(self) -> list[str]:
        found = filter(None, map(_METRICS.fullmatch, self.store.files("metrics")))
        return [match[0] for match in sorted(found, key=lambda match: (int(match[1]), int(match[2])))]

    def attempts(self) -> list[int]:
        """Those that have logs."""
        return sorted(int(match[1]) for match in map(_ATTEMPT.fullmatch, self.store.directories("logs")) if match)

    def ranks(self, attempt: int) -> list[int]:
        names = self.store.files(_layout.log_file(attempt, 0).parent.as_posix())
        return sorted(int(match[1]) for match in map(_LOG.fullmatch, names) if match)

    def log(self, attempt: int, rank: int, start: int) -> Iterator[bytes]:
        """What a log has from that byte on, in pieces."""
        return self.store.read(_layout.log_file(attempt, rank).as_posix(), start)

    def log_backwards(self, attempt: int, rank: int) -> Iterator[bytes]:
        """The lines of a log, the last one first."""
        return _lines_backwards(self.store.read_backwards(_layout.log_file(attempt, rank).as_posix()))

    def log_size(self, attempt: int, rank: int) -> int:
        return self.store.size(_layout.log_file(attempt, rank).as_posix())

    def stacks(self, attempt: int) -> dict[int, str]:
        """What each rank was doing when the attempt seemed to hang; empty if it never did."""
        file = _layout.stacks_file(attempt).as_posix()
        text = b"".join(self.store.read(file)).decode(errors="replace")
        parts = _RANK.split(text)
        return {int(rank): body.strip() for rank, body in zip(parts[1::2], parts[2::2], strict=True)}

    # Damage

    def run_file_damage(self) -> list[Damage]:
        """NewerFormatError if a newer version of Holdfast has written the run."""
        return _confirmed(self.store.identity_damage)

    def journal_damage(self) -> list[Damage]:
        return _confirmed(lambda: self.journal()[1])

    def metrics_damage(self, file: str) -> tuple[int, list[Damage]]:
        """How many intact reports it has, and what is wrong with the rest."""
        return len(self.store.reports(file)[0]), _confirmed(lambda: self.store.reports(file)[1])

    def manifest_damage(self) -> list[Damage]:
        """Manifests that are not intact, and those that are gone although the journal has their checkpoints as kept,
        unless they were set aside or deleted by hand."""
        return _confirmed(self._manifest_damage)

    def _manifest_damage(self) -> list[Damage]:
        manifests, found = self.manifests()
        kept = self.past(self.records()).state.checkpoints
        seen = {manifest.id for manifest in manifests} | {checkpoint_of(damage) for damage in found}
        if any(record.id not in seen for record in kept):
            seen |= {id for id, _ in self.quarantined()}
        for record in kept:
            if record.id not in seen and not self.has_manifest(record.id):
                path = f"checkpoints/{record.id}.json"
                found.append(Damage(path, "file", "it is gone, and with it the checkpoint"))
        return found


def checkpoint_of(damage: Damage) -> str:
    return damage.path.rpartition("/")[2].removesuffix(".json")


def closing_account(records: list[Record], layout: RunLayout) -> str:
    """A line for the end of a run. Empty where it would take long: the end of a run must not wait or fail for it."""
    run = StoredRun(Location("", str(layout.root)))
    try:
        ledger = Reading(run, None, [], records, read_past(records)).quick_ledger()
    except OSError:
        return ""
    return "" if ledger is None else ledger.summary()


def _confirmed(look: Callable[[], list[Damage]]) -> list[Damage]:
    found = look()
    return [damage for damage in look() if damage in found] if found else []


def _lines_backwards(blocks: Iterable[bytes]) -> Iterator[bytes]:
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
