"""What a node does with the files of one run: nothing but seal them, where they lie in the run's own directory; or what
``node_checkpoints`` does, where the node keeps them until they are uploaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.layout import RunLayout
from holdfast.store.staging import FileEntry


class Left(NamedTuple):
    """What one rank of an earlier attempt reported, according to its log."""

    attempt_number: int
    rank: int
    log: bytes
    lost: list[int]  # the reports whose files are not here, or not as they were


class NodeFiles(ABC):
    layout: RunLayout
    save_logs_every_s: float | None  # None: the logs are where they belong

    @abstractmethod
    def seal(self, attempt_number: int, index: int, rank: int) -> list[FileEntry]:
        """Sync what a rank staged, and compute its digests."""

    @abstractmethod
    def gather(
        self, id: str, attempt_number: int, index: int, manifest: bytes, parts: list[tuple[int, list[str]]]
    ) -> None:
        """Merge the node's part of a complete checkpoint, as far as it came."""

    @abstractmethod
    def upload(self, id: str) -> None:
        """The gathered files; FileNotFoundError if one of them is missing."""

    @abstractmethod
    def fetch(self, id: str, manifest_line: bytes, stored: bool) -> None:
        """Make sure that every file of the manifest is here and matches its digest. CheckpointDamagedError if storage
        has other content, or if a file is missing here and the checkpoint is not ``stored``."""

    @abstractmethod
    def has(self, id: str) -> bool:
        """Whether workers here can read the whole checkpoint as files."""

    @abstractmethod
    def resume_from(self, id: str | None) -> None:
        """Keep what the attempt starts from."""

    @abstractmethod
    def mark_durable(self, id: str) -> None:
        """The checkpoint is committed."""

    @abstractmethod
    def forget(self, attempt_number: int, index: int, id: str) -> None:
        """Remove what ranks staged for a report, and the checkpoint that it became."""

    @abstractmethod
    def sweep(self, until: int) -> None:
        """Remove what attempts up to that one staged and no driver wants."""

    @abstractmethod
    def take_back(self) -> None:
        """Undo each interrupted gathering, so that all staged files of its ranks are in one place again."""

    @abstractmethod
    def left(self) -> list[Left]:
        """The reports of the last attempt here, if the driver cannot read them itself."""

    @abstractmethod
    def unsaved(self) -> list[bytes]:
        """The manifests of checkpoints that are gathered here and are not in storage."""

    @abstractmethod
    def save_logs(self) -> None:
        """Store the new part of the logs."""

    @abstractmethod
    def wind_up(self, submit: Callable[[Callable[[], None]], None]) -> None:
        """The run is over and idle: what is left to do with its files is submitted."""

    @abstractmethod
    def close(self, over: bool) -> None:
        """``over``: the run ended normally, and files here that are in storage are no longer needed."""


class FilesInPlace(NodeFiles):
    """Workers stage into the run's directory, which the driver reaches: it commits, keeps and removes."""

    save_logs_every_s = None

    def __init__(self, home: Path) -> None:
        self.layout = RunLayout(home)
        self._store = CheckpointStore(self.layout)

    def seal(self, attempt_number: int, index: int, rank: int) -> list[FileEntry]:
        return self._store.seal(self.layout.shard_dir(attempt_number, index, rank))

    def gather(
        self, id: str, attempt_number: int, index: int, manifest: bytes, parts: list[tuple[int, list[str]]]
    ) -> None:
        raise AssertionError("only what is uploaded is gathered")

    def upload(self, id: str) -> None:
        raise AssertionError("the files are where they belong")

    def fetch(self, id: str, manifest_line: bytes, stored: bool) -> None:
        raise AssertionError("the files are where they belong")

    def has(self, id: str) -> bool:
        return True

    def resume_from(self, id: str | None) -> None:
        pass

    def mark_durable(self, id: str) -> None:
        pass

    def forget(self, attempt_number: int, index: int, id: str) -> None:
        pass

    def sweep(self, until: int) -> None:
        pass

    def take_back(self) -> None:
        pass

    def left(self) -> list[Left]:
        return []

    def unsaved(self) -> list[bytes]:
        return []

    def save_logs(self) -> None:
        pass

    def wind_up(self, submit: Callable[[Callable[[], None]], None]) -> None:
        pass

    def close(self, over: bool) -> None:
        pass
