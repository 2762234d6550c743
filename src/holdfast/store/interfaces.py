"""The storage of one run, as interfaces. Readers and drivers use these and need not know where the run is stored.

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
    pid: int | None  # None if the lock's owner is unknown
    host: str | None = None
    since: float | None = None


class JournalWriter(ABC):
    """The journal, open for the driver of one epoch. Not thread-safe."""

    @abstractmethod
    def append(self, entries: Entries, time: float, sync: bool = True) -> None:
        """Make all entries durable together. After an error none of them counts as written.

        Without ``sync``, a power cut may lose them until ``sync()`` is called.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make entries that were appended without a sync durable."""

    @abstractmethod
    def close(self) -> None: ...


class DriverLease(ABC):
    """The right to write a run, held until ``release()``, the end of the process, or another driver's takeover."""

    epoch: int  # greater than all earlier ones

    @abstractmethod
    def open_journal(self) -> tuple[JournalWriter, list[Record], list[Damage]]:
        """Begin this epoch's part of the journal; returns the earlier records and their problems."""

    @abstractmethod
    def check(self) -> None:
        """If the lease is known to be lost, raise an error that says what happened: this driver must not write any
        more. Fast and thread-safe."""

    @property
    def is_lost(self) -> bool:
        """Whether another driver has started, or may have started."""
        try:
            self.check()
        except HoldfastError:
            return True
        return False

    @abstractmethod
    def release(self) -> None:
        """Allow another driver to start immediately. In a forked child this does nothing."""


class Checkpoints(ABC):
    """The checkpoints of one run. One exists if and only if its manifest does."""

    @abstractmethod
    def commit(self, manifest: Manifest, shards: Sequence[Shard] = ()) -> Manifest:
        """The checkpoint exists when this returns. ``shards``: the files that ranks staged where the driver reaches
        them. Without shards, the files that the manifest names have been uploaded."""

    @abstractmethod
    def read_manifest(self, id: str) -> Manifest:
        """CheckpointDamagedError if it is missing or not intact."""

    @abstractmethod
    def has_manifest(self, id: str) -> bool: ...

    @abstractmethod
    def scan(self, judge: Judge | None = None) -> tuple[list[Manifest], list[Damage]]:
        """The intact manifests by report number, and the problems of the others. No file is read.

        Where a manifest may appear after another driver took over, ``judge`` decides which manifests count. It is
        called after the listing, so that what it reads is not older than the list.
        """

    @abstractmethod
    def commit_copy(self, source: Manifest, of: Checkpoints, manifest: Manifest) -> Manifest:
        """Commit, as ``manifest``, another run's files of a checkpoint; CheckpointDamagedError if they are damaged."""

    @abstractmethod
    def verify(self, id: str) -> Manifest:
        """Compare every file with the manifest. A CheckpointDamagedError names the differences."""

    @abstractmethod
    def delete(self, id: str) -> None:
        """Remove a checkpoint. It is not an error if it does not exist."""

    @abstractmethod
    def quarantine(self, id: str, why: str) -> None:
        """Never offer this checkpoint again. Its files stay until it is deleted, or its name is committed again."""

    @abstractmethod
    def quarantined(self) -> list[tuple[str, str]]:
        """The quarantined checkpoints, with the reasons."""

    @abstractmethod
    def remove_files(self, manifest: Manifest) -> None:
        """Remove the files of a checkpoint that was quarantined; its mark and the reason stay."""


class RunStore(ABC):
    """Everything that is stored of one run. Reading takes no lease and changes nothing."""

    location: Location
    checkpoints: Checkpoints

    @abstractmethod
    def is_there(self) -> bool:
        """Whether anything is stored here."""

    @abstractmethod
    def is_run(self) -> bool:
        """Whether this is a run. Without its run.json it still is one: the journal has a copy."""

    @abstractmethod
    def check_format(self) -> None:
        """NewerFormatError if a newer version of Holdfast has written into the run."""

    @abstractmethod
    def read_identity(self) -> dict[str, Any]:
        """The content of run.json. NotARunError if it does not exist, StorageError if it is damaged."""

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
        """A value that changes with the journal; None if it would cost as much as reading the journal."""
        return None

    @abstractmethod
    def journal_files(self) -> str:
        """How many files or objects the journal consists of, in words."""

    @abstractmethod
    def living_driver(self) -> LivingDriver | None: ...

    @abstractmethod
    def acquire(self, on_lost: Callable[[RunInUseError], None]) -> DriverLease:
        """Take the lease, or raise a RunInUseError that says who holds it. ``on_lost`` may be called once, from another
        thread, when another driver has started."""

    @abstractmethod
    def keep_drivers_out(self) -> AbstractContextManager[None]:
        """Keep drivers from starting while a person changes the run. RunInUseError if the run has a driver."""

    def close(self) -> None:  # noqa: B027
        """Cancel what is in progress."""

    # Files that grow: logs and reports

    @abstractmethod
    def directories(self, directory: str = "") -> list[str]:
        """The names of the directories directly below this one."""

    @abstractmethod
    def files(self, directory: str) -> list[str]:
        """All files below a directory, as paths in the run."""

    @abstractmethod
    def read(self, file: str, start: int = 0) -> Iterator[bytes]:
        """The content of a file from byte ``start``, in pieces; empty if the file does not exist."""

    @abstractmethod
    def size(self, file: str) -> int:
        """The file's size in bytes; 0 if it does not exist."""

    @abstractmethod
    def total_size(self, directory: str) -> int:
        """The size of all files directly below it, in bytes."""

    @abstractmethod
    def read_backwards(self, file: str) -> Iterable[bytes]:
        """The pieces of a file from its end; empty if it cannot be read."""

    @abstractmethod
    def reports(self, file: str) -> tuple[list[dict[str, Any]], list[Damage]]:
        """The intact reports in a file, and the problems of the rest."""
