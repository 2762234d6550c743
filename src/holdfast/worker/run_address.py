"""Where a run is stored, according to the messages to its nodes and workers. Only this module reads these fields; other
code asks it what follows from them."""

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
    """A message to a node or a worker that says where the run is stored."""

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
        """The directory that every node must reach; empty if there is none."""

    @abstractmethod
    def node_lost(self, node_id: str) -> None:
        """The node's machine is lost, with everything that only its disk held."""

    @abstractmethod
    def files(self, on_disk: Callable[[], F], uploaded: Callable[[], F]) -> F:
        """Calls the function for the way in which a node stores its workers' files."""


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
        """Nothing to do: the run's directory does not belong to the node."""

    def files(self, on_disk: Callable[[], F], uploaded: Callable[[], F]) -> F:
        return on_disk()


class UploadAddress(RunAddress):
    """Each node has its own directory in ``run_dir`` and uploads from there."""

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
    """The address in a message. Only this function chooses between disk and uploads."""
    return UploadAddress(message.storage, message.run_dir) if message.storage else DiskAddress(message.run_dir)
