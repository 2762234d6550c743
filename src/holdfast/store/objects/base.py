"""What the store asks of an object store: named bytes, flat, written as a whole or not at all.

Keys are relative, with "/" between their parts. Every call has time-outs and is tried again with jittered back-off
until the patience is over; then it raises a ``StorageError`` that names the store, the key, the cause and the remedy.
All methods may be called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable


class ObjectInfo(NamedTuple):
    key: str
    size: int


class Level(NamedTuple):
    """One level of a hierarchy: the objects right below a prefix, and the names of what has more below it."""

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
        """Like ``put``, but ``ObjectExistsError`` if the key is taken. ``data`` must be unique to the caller: what is
        there already and is equal to it was written by an earlier try of this call, whose reply was lost."""

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """All objects whose key begins with the prefix, a directory's name with its "/", by key."""

    def level(self, prefix: str = "") -> Level:
        """What is right below a directory, in as few requests as the store allows, by key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove them, many at once where the store can; what is not there is no error."""

    def upload(self, path: Path, key: str) -> None:
        """Store a file's content, large ones in parallel parts. Replaces as a whole; bounded memory."""

    def download(self, key: str, path: Path, size: int) -> None:
        """Write an object of a known size into a new file, in parallel ranges. What an interrupted call left beside it
        is used; the file appears under its name when it is complete. ``ObjectMissingError`` if it is not there, and a
        ``CheckpointDamagedError`` if it has another size."""

    def with_patience(self, seconds: float) -> ObjectStore:
        """The same store with another limit on how long a call is tried."""

    def close(self) -> None:
        """Give up what is under way: calls that wait for a retry raise immediately."""


@runtime_checkable
class HasClock(Protocol):
    """A store with a clock of its own, which may differ from this machine's."""

    def written_at(self, key: str) -> float:
        """When the object was written, in seconds since 1970 by the store's clock."""
