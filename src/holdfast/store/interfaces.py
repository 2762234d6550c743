"""The storage of one run, as interfaces: readers and drivers use these, and need not know where the run is stored.

Each has an implementation on disk and one on object stores. ``holdfast.testing.store_contract`` defines their
behaviour.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, RunInUseError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from holdfast.store.journal import Record
    from holdfast.store.location import Location
    from holdfast.store.manifests import Manifest, Shard
    from holdfast.store.sealed import Damage

Judge = Callable[[], Callable[["Manifest"], bool]]
Entries = Sequence[tuple[str, Mapping[str, Any]]]  # kind and body of each record
NO_REASON = "the reason was not recorded"


@dataclass(frozen=True)
class LivingDriver:
    pid: int | None  # None where the lock's owner cannot be told
    host: str | None = None
    since: float | None = None


class JournalWriter(ABC):
    """The journal, open for the driver of one epoch. Not thread-safe."""

    @abstractmethod
    def append(self, entries: Entries, time: float, sync: bool = True) -> None:
        """Make all entries durable together. After an error none of them counts as written.

        Without the sync they may be lost in a power cut, until ``sync`` is called.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make entries durable that were appended without a sync."""

    @abstractmethod
    def close(self) -> None: ...


class DriverLease(ABC):
    """The right to write a run, held until ``release()``, the end of the process, or another driver's takeover."""

    epoch: int  # above all earlier ones

    @abstractmethod
    def open_journal(self) -> tuple[JournalWriter, list[Record], list[Damage]]:
        """Begin this epoch's part of the journal; returns the earlier records and their problems."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error that says what happened if the lease is known to be lost: this driver must not write any more.
        Fast, and thread-safe."""

    @property
    def is_lost(self) -> bool:
        """Whether another driver has begun, or may have."""
        try:
            self.check()
        except HoldfastError:
            return True
        return False

    @abstractmethod
    def release(self) -> None:
        """Let another driver in immediately. In a forked child this changes nothing."""


class Checkpoints(ABC):
    """The checkpoints of one run. One exists if and only if its manifest does."""

    @abstractmethod
    def commit(self, manifest: Manifest, shards: Sequence[Shard] = ()) -> Manifest:
        """The checkpoint exists when this returns. ``shards``: what ranks staged where the driver reaches it; without
        them, the files that the manifest names were uploaded before."""

    @abstractmethod
    def read_manifest(self, id: str) -> Manifest:
        """CheckpointDamagedError if it is missing or not intact."""

    @abstractmethod
    def has_manifest(self, id: str) -> bool: ...

    @abstractmethod
    def scan(self, judge: Judge | None = None) -> tuple[list[Manifest], list[Damage]]:
        """The intact manifests by report number, and the problems of the others. No file is read.

        If a manifest may appear after another driver took over, ``judge`` decides which of them count. It is called
        after they are listed, so that what it reads is not older than the list.
        """

    @abstractmethod
    def commit_copy(self, source: Manifest, of: Checkpoints, manifest: Manifest) -> Manifest:
        """Commit, as ``manifest``, another run's files of a checkpoint; CheckpointDamagedError if they are damaged."""

    @abstractmethod
    def verify(self, id: str) -> Manifest:
        """Compare every file with the manifest; CheckpointDamagedError names what differs."""

    @abstractmethod
    def delete(self, id: str) -> None:
        """Remove a checkpoint; deleting one that is not there is not an error."""

    @abstractmethod
    def quarantine(self, id: str, why: str) -> None:
        """Never offer this checkpoint again. Its files stay, until it is deleted or its name is committed again."""

    @abstractmethod
    def quarantined(self) -> list[tuple[str, str]]:
        """The checkpoints that were set aside, with the reason."""

    @abstractmethod
    def remove_files(self, manifest: Manifest) -> None:
        """Remove the files of a checkpoint that was quarantined; its mark and the reason stay."""


class RunStore(ABC):
    """All that is stored of one run. Reading takes no lease and changes nothing."""

    location: Location
    checkpoints: Checkpoints

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there is anything at all."""

    @abstractmethod
    def is_run(self) -> bool:
        """A run that lost its run.json is still one: the journal has a copy."""

    @abstractmethod
    def check_format(self) -> None:
        """NewerFormatError if a newer version of Holdfast has written into the run."""

    @abstractmethod
    def read_identity(self) -> dict[str, Any]:
        """What run.json says. NotARunError if there is none, StorageError if it is damaged."""

    @abstractmethod
    def write_identity(self, identity: dict[str, Any]) -> None: ...

    def identity_damage(self) -> list[Damage]:
        from holdfast.store.sealed import Damage

        try:
            self.read_identity()
        except StorageUnavailableError:
            raise
        except StorageError as error:
            return [Damage("run.json", "file", str(error))]
        return []

    @abstractmethod
    def read_journal(self) -> tuple[list[Record], list[Damage]]:
        """Every intact record in order, and the problems of the rest."""

    def journal_stamp(self) -> int | None:
        """The same as long as the journal is; None if to know it costs as much as to read the journal."""
        return None

    @abstractmethod
    def journal_files(self) -> str:
        """How many files or objects it consists of, in words."""

    @abstractmethod
    def living_driver(self) -> LivingDriver | None: ...

    @abstractmethod
    def acquire(self, on_lost: Callable[[RunInUseError], None]) -> DriverLease:
        """Take the lease, or raise RunInUseError that says who has it. ``on_lost`` may be called from another thread,
        once, when another driver has begun."""

    @abstractmethod
    def keep_drivers_out(self) -> AbstractContextManager[None]:
        """For changes by hand. RunInUseError if the run has a driver."""

    def close(self) -> None:  # noqa: B027
        """Cancel what is in progress."""

    # Files that grow: logs and reports

    @abstractmethod
    def directories(self, directory: str = "") -> list[str]:
        """The names of those right below it."""

    @abstractmethod
    def files(self, directory: str) -> list[str]:
        """All below it, by their paths in the run."""

    @abstractmethod
    def read(self, file: str, start: int = 0) -> Iterator[bytes]:
        """The content of a file from that byte on, in pieces; empty if it does not exist."""

    @abstractmethod
    def size(self, file: str) -> int:
        """In bytes; 0 if it does not exist."""

    @abstractmethod
    def total_size(self, directory: str) -> int:
        """The size of all files directly below it, in bytes."""

    @abstractmethod
    def read_backwards(self, file: str) -> Iterable[bytes]:
        """Its pieces from the end; nothing if it cannot be read."""

    @abstractmethod
    def reports(self, file: str) -> tuple[list[dict[str, Any]], list[Damage]]:
        """The intact reports in a file, and the problems of the rest."""
