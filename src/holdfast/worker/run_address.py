"""Where a run is stored, as messages to its nodes and workers say it. Only this module reads that; it is asked for what
follows from it."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import cloudpickle

from holdfast.store.location import Location

F = TypeVar("F")


class SaysWhere(Protocol):
    """A message to a node or a worker."""

    @property
    def run_dir(self) -> str: ...
    @property
    def storage(self) -> bytes: ...


class RunAddress(ABC):
    @abstractmethod
    def location(self) -> Location: ...

    @property
    @abstractmethod
    def directory_of_all(self) -> str:
        """The directory that every node has to reach; empty if none is needed."""

    @abstractmethod
    def node_lost(self, node_id: str) -> None:
        """The node's machine is lost: so is what only its disk had."""

    @abstractmethod
    def files(self, on_disk: Callable[[], F], uploaded: Callable[[], F]) -> F:
        """What a node does with the files of its workers."""


class DiskAddress(RunAddress):
    """Workers write into the run's own directory."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir

    def location(self) -> Location:
        return Location.parse("run_dir", self._run_dir)

    @property
    def directory_of_all(self) -> str:
        return self._run_dir

    def node_lost(self, node_id: str) -> None:
        """The run's directory is not the node's."""

    def files(self, on_disk: Callable[[], F], uploaded: Callable[[], F]) -> F:
        return on_disk()


class UploadAddress(RunAddress):
    """Each node has a directory of its own in ``run_dir``, and uploads from there."""

    def __init__(self, location: bytes, run_dir: str) -> None:
        self._location, self._run_dir = location, run_dir

    def location(self) -> Location:
        location: Location = cloudpickle.loads(self._location)
        return location

    @property
    def directory_of_all(self) -> str:
        return ""

    def node_lost(self, node_id: str) -> None:
        shutil.rmtree(Path(self._run_dir) / node_id, ignore_errors=True)

    def files(self, on_disk: Callable[[], F], uploaded: Callable[[], F]) -> F:
        return uploaded()


def address_in(message: SaysWhere) -> RunAddress:
    """The only place that chooses."""
    return UploadAddress(message.storage, message.run_dir) if message.storage else DiskAddress(message.run_dir)
