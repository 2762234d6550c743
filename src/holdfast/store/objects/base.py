"""What the store needs from an object store: named bytes, flat, written as a whole or not at all.

Keys are relative, with "/" between their parts. Every call has timeouts and is retried with jittered back-off until its
patience, a limit in seconds, runs out. Then it raises a ``StorageError`` that names the store, the key, the cause and
the remedy. All methods are thread-safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


class ObjectInfo(NamedTuple):
    key: str
    size: int


class Level(NamedTuple):
    """One level of a hierarchy: the objects right below a prefix, and the names of its subdirectories."""

    objects: list[ObjectInfo]
    directories: list[str]  # keys without the trailing "/"


class ObjectStore(Protocol):
    @property
    def url(self) -> str:
        """The URL to show to people. It never holds credentials."""

    @property
    def creates_safely(self) -> bool:
        """Whether the store itself decides a ``create``. This is tried once and remembered."""

    def get(self, key: str) -> bytes:
        """The whole content; ``ObjectMissingError`` if the object does not exist."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``, for ranges inside the object."""

    def put(self, key: str, data: bytes) -> None:
        """Create or replace, as a whole."""

    def create(self, key: str, data: bytes) -> None:
        """Like ``put``, but ``ObjectExistsError`` if the key is taken. ``data`` must be unique to the caller: equal
        content means that an earlier try of this call wrote it and the reply was lost."""

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """All objects whose key begins with the prefix, sorted by key. The prefix of a directory ends with "/"."""

    def level(self, prefix: str = "") -> Level:
        """What is directly below a directory, sorted by key, in as few requests as the store allows."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, many per request if the store can. A missing object is not an error."""

    def upload(self, path: Path, key: str) -> None:
        """Store a file's content, in parallel parts if it is large. Replaces the object as a whole. Bounded memory."""

    def download(self, key: str, path: Path, size: int) -> None:
        """Write an object of a known size into a new file, in parallel ranges. Parts from an interrupted call are used;
        the file gets its name when it is complete. ``ObjectMissingError`` if the object does not exist, and
        ``CheckpointDamagedError`` if it has another size."""

    def with_patience(self, seconds: float) -> ObjectStore:
        """The same store with another limit on how long a call is retried."""

    def close(self) -> None:
        """Cancel what is in progress: calls that wait for a retry raise immediately."""


class VersionedRange(NamedTuple):
    data: bytes
    version: str  # what changes when the object is replaced (ETag); empty if the store has no such thing
    size: int  # the size of the whole object


@runtime_checkable
class HasVersions(Protocol):
    """A store that says which version of an object it reads."""

    def get_version(self, key: str, start: int, length: int) -> VersionedRange:
        """Like ``get_range``, for at least one byte; fewer bytes than requested if the object is smaller."""


@runtime_checkable
class HasClock(Protocol):
    """A store with its own clock, which may differ from this machine's."""

    def written_at(self, key: str) -> float:
        """When the object was written, in seconds since 1970 by the store's clock."""
