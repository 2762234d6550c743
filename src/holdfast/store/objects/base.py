"""What the store needs from an object store: named bytes, flat, written as a whole or not at all.

Keys are relative, with "/" between their parts. Every call has timeouts and is retried with jittered back-off until the
patience runs out; then it raises a ``StorageError`` that names the store, the key, the cause and the remedy. All
methods are thread-safe.
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
        """For people and error texts. Never holds credentials."""

    @property
    def creates_safely(self) -> bool:
        """Whether ``create`` is decided by the store itself. Found out by trying, once, and remembered."""

    def get(self, key: str) -> bytes:
        """The whole content; ``ObjectMissingError`` if there is none."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``, for ranges inside the object."""

    def put(self, key: str, data: bytes) -> None:
        """Create or replace, as a whole."""

    def create(self, key: str, data: bytes) -> None:
        """Like ``put``, but ``ObjectExistsError`` if the key is taken. ``data`` must be unique to the caller: an
        existing object with equal content was written by an earlier try of this call, whose reply was lost."""

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """All objects whose key begins with the prefix, a directory's name with its "/", by key."""

    def level(self, prefix: str = "") -> Level:
        """The content right below a directory, in as few requests as the store allows, by key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove them, many at a time if the store can; a missing object is not an error."""

    def upload(self, path: Path, key: str) -> None:
        """Store a file's content, large ones in parallel parts. Replaces as a whole; bounded memory."""

    def download(self, key: str, path: Path, size: int) -> None:
        """Write an object of a known size into a new file, in parallel ranges. Parts from an interrupted call are used;
        the file gets its name when it is complete. ``ObjectMissingError`` if the object does not exist, and
        ``CheckpointDamagedError`` if it has another size."""

    def with_patience(self, seconds: float) -> ObjectStore:
        """The same store with another limit on how long a call is tried."""

    def close(self) -> None:
        """Cancel what is in progress: calls that wait for a retry raise immediately."""


class VersionedRange(NamedTuple):
    data: bytes
    version: str  # what changes when the object is replaced (ETag); empty if the store has no such thing
    size: int  # of the whole object


@runtime_checkable
class HasVersions(Protocol):
    """A store that says which version of an object it reads."""

    def get_version(self, key: str, start: int, length: int) -> VersionedRange:
        """At least one byte, as ``get_range``; fewer bytes than asked for if the object is smaller."""


@runtime_checkable
class HasClock(Protocol):
    """A store with its own clock, which may differ from this machine's."""

    def written_at(self, key: str) -> float:
        """When the object was written, in seconds since 1970 by the store's clock."""
