"""A stored run, wherever it is stored, running or not. All readers use this class. Each question is answered from
storage, and ``read`` returns the state of one moment. Only a run opened with ``once=True`` remembers what it has read,
for a page that asks the same several times; ``look_again`` forgets it.

A driver may be writing meanwhile. Manifests are therefore read before the journal, and damage counts only if a second
look finds it too: a file that was deleted, or half written, at the first look must not count as damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.errors import StorageError, StorageUnavailableError
from holdfast.store.interfaces import LivingDriver, RunStore
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.store.manifests import Manifest
from holdfast.store.regular import LINE
from holdfast.store.run_at import run_at, run_for_one_look
from holdfast.store.sealed import Damage

from .past import Past, read_past
from .reading import Reading

PATIENCE_S = 60.0
_ATTEMPT = re.compile(r"attempt-(\d+)")
_LOG = re.compile(r"logs/attempt-\d+/rank-(\d+)\.log")
_JOURNAL = "journal"
_RANK = re.compile(r"^rank (\d+)$", re.MULTILINE)
_METRICS = re.compile(r"metrics/attempt-(\d+)/rank-(\d+)\.jsonl")
_layout = RunLayout(Path())  # of paths in the run
T = TypeVar("T")


class StoredRun:
    _seen: dict[str, Any] | None = None  # what one look has read; None: each question reads again
    _forget: Callable[[], None] = staticmethod(lambda: None)  # what an object store has remembered for one look

    def __init__(
        self, location: Location, patience_s: float = PATIENCE_S, store: RunStore | None = None, *, once: bool = False
    ) -> None:
        self.location, self.patience_s = location, patience_s
        if once:
            self._seen = {}
        if store is not None:
            self.store = store

    @cached_property
    def store(self) -> RunStore:
        if self._seen is None:
            return run_at(self.location, self.patience_s)
        store, self._forget = run_for_one_look(self.location, self.patience_s)
        return store

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("store", "_forget")}

    def read(self, *, with_driver: bool = True, with_manifests: bool = True) -> Reading:
        driver = self.driver() if with_driver else None
        manifests = self.manifests()[0] if with_manifests else []
        records, damage = self.journal()
        return Reading(self, driver, manifests, records, self.of_journal("past", lambda: self.past(records, damage)))

    @property
    def is_once(self) -> bool:
        return self._seen is not None

    def look_again(self, *, keeps_journal: bool = False) -> None:
        """Forget what was read; ``keeps_journal``: except the journal and what follows from it."""
        if self._seen is not None:
            kept = {name: seen for name, seen in self._seen.items() if keeps_journal and name.startswith(_JOURNAL)}
            self._seen.clear()
            self._seen.update(kept)
            self._forget()

    def of_journal(self, question: str, ask: Callable[[], T]) -> T:
        """An answer that follows from the journal alone."""
        return self._once(f"{_JOURNAL}: {question}", ask)

    def _once(self, question: str, ask: Callable[[], T]) -> T:
        if self._seen is None:
            return ask()
        if question not in self._seen:
            self._seen[question] = ask()
        answer: T = self._seen[question]
        return answer

    def driver(self) -> LivingDriver | None:
        return self._once("driver", lambda: self.store.living_driver())

    def identity(self) -> dict[str, Any]:
        """The content of run.json; if that is damaged, the copy in the journal. NotARunError if there is no run."""
        return self._once("identity", self._identity)

    def _identity(self) -> dict[str, Any]:
        try:
            return self._once("run.json", lambda: self.store.read_identity())
        except StorageUnavailableError:
            raise
        except StorageError:
            identity = self.past(StoredRun.journal(self)[0]).identity
            if identity is None:
                raise
            return identity

    def known_identity(self) -> dict[str, Any]:
        """The identity; empty if it is lost, which then counts as damage."""
        try:
            return self.identity()
        except StorageUnavailableError:
            raise
        except StorageError:
            return {}

    def run_id(self) -> str:
        """The id of the run. It differs if the run was deleted and a new run has its name."""
        return str(self.known_identity().get("id", ""))

    def journal(self) -> tuple[list[Record], list[Damage]]:
        return self._once(_JOURNAL, lambda: self.store.read_journal())

    def journal_stamp(self) -> int | None:
        """The same as long as the journal is; None if to know it costs as much as to read the journal."""
        return self.store.journal_stamp()

    def journal_size(self) -> int:
        """In bytes: as long as it stays the same, so does the journal."""
        return self.store.total_size("journal")

    def records(self) -> list[Record]:
        return self.journal()[0]

    def _known_past(self) -> Past:
        return self.of_journal("past", lambda: self.past(*self.journal()))

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
        return self._once("manifests", lambda: self.store.checkpoints.scan(lambda: self._known_past().counts))

    def verify(self, id: str) -> None:
        """CheckpointDamagedError if a file differs from the manifest."""
        self.store.checkpoints.verify(id)

    def has_manifest(self, id: str) -> bool:
        return self.store.checkpoints.has_manifest(id)

    def quarantined(self) -> list[tuple[str, str]]:
        return self._once("quarantined", lambda: self.store.checkpoints.quarantined())

    # Reports and logs

    def reports(self, attempt_number: int, rank: int = 0) -> list[dict[str, Any]]:
        """All that a rank reported in an attempt: index, time and metrics of each."""
        return self.store.reports(_layout.metrics_file(attempt_number, rank).as_posix())[0]

    def reports_backwards(self, attempt_number: int) -> Iterator[bytes]:
        """The lines of rank 0's reports, the last one first."""
        return _lines_backwards(self.store.read_backwards(_layout.metrics_file(attempt_number, 0).as_posix()))

    def report_bytes(self, attempt_number: int, start: int) -> Iterator[bytes]:
        """Rank 0's reports from that byte on, in pieces: lines for ``parse_line``."""
        return self.store.read(_layout.metrics_file(attempt_number, 0).as_posix(), start)

    def reports_size(self, attempt_number: int) -> int:
        file = _layout.metrics_file(attempt_number, 0).as_posix()
        return self._once(f"size of {file}", lambda: self.store.size(file))

    def metrics_files(self) -> list[str]:
        found = filter(None, map(_METRICS.fullmatch, self.store.files("metrics")))
        return [match[0] for match in sorted(found, key=lambda match: (int(match[1]), int(match[2])))]

    def attempts(self) -> list[int]:
        """Those that have logs."""
        names = self._once("logs", lambda: self.store.directories("logs"))
        return sorted(int(match[1]) for match in map(_ATTEMPT.fullmatch, names) if match)

    def ranks(self, attempt: int) -> list[int]:
        names = self.store.files(_layout.log_file(attempt, 0).parent.as_posix())
        return sorted(int(match[1]) for match in map(_LOG.fullmatch, names) if match)

    def log(self, attempt: int, rank: int, start: int) -> Iterator[bytes]:
        """A log from that byte on, in pieces."""
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
        if self._seen is not None and "run.json" in self._seen:
            return []  # it was read and is intact
        return self._confirmed(lambda: self.store.identity_damage())

    def journal_damage(self) -> list[Damage]:
        return self._confirmed(lambda: self.journal()[1])

    def metrics_damage(self, file: str) -> tuple[int, list[Damage]]:
        """The number of intact reports, and the problems with the rest."""
        return len(self.store.reports(file)[0]), self._confirmed(lambda: self.store.reports(file)[1])

    def manifest_damage(self) -> list[Damage]:
        """Damaged manifests, and those that are missing although the journal has their checkpoints as kept, unless they
        were set aside or deleted by hand."""
        return self._confirmed(self._manifest_damage)

    def _confirmed(self, look: Callable[[], list[Damage]]) -> list[Damage]:
        found = look()
        if not found:
            return []
        self.look_again()
        return [damage for damage in look() if damage in found]

    def _manifest_damage(self) -> list[Damage]:
        manifests, damage = self.manifests()
        found = list(damage)
        kept = self._known_past().state.checkpoints
        seen = {manifest.id for manifest in manifests} | {checkpoint_of(damage) for damage in found}
        if any(record.id not in seen for record in kept):
            seen |= {id for id, _ in self.quarantined()}
        for record in kept:
            if record.id not in seen and not self.has_manifest(record.id):
                path = f"checkpoints/{record.id}.json"
                found.append(Damage(path, "file", "it is missing, so the checkpoint is lost"))
        return found


def checkpoint_of(damage: Damage) -> str:
    return damage.path.rpartition("/")[2].removesuffix(".json")


def closing_account(records: list[Record], layout: RunLayout) -> str:
    """A summary for the end of a run. It never raises an error."""
    run = StoredRun(Location("", str(layout.root)))
    try:
        return Reading(run, None, [], records, read_past(records)).quick_ledger().summary()
    except OSError:
        return ""


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
