"""An object of a store as an open file. Everything that is read belongs to one version of the object."""

from __future__ import annotations

import os

from holdfast.errors import DataError
from holdfast.store.objects.base import HasVersions, ObjectStore

_LEAST, _MOST = 1 << 20, 8 << 20  # bytes in a request, when the file is read from its beginning on


class ObjectReader:
    """What pyarrow needs of an open file. A read is a request for a range; if ``is_buffered``, small reads share one,
    and these grow, so that who takes some rows does not fetch megabytes.

    ``version`` is the one that is wanted, or else the one that the first request finds."""

    def __init__(self, store: ObjectStore, key: str, size: int, version: str, shown: str, is_buffered: bool) -> None:
        self._store, self._key, self._size, self._shown = store, key, size, shown
        self.version = version
        self._at, self.closed = 0, False
        self._ahead = _LEAST if is_buffered else 0
        self._held, self._first = b"", 0  # the bytes that were read last, and where they begin

    def read(self, length: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if length is None or length < 0 else min(length, left)
        start = self._at - self._first
        if not 0 <= start <= len(self._held):
            self._held, self._first, start = b"", self._at, 0
        if start + wanted > len(self._held):
            self._held, self._first = self._held[start:], self._at
            start, end = 0, self._first + len(self._held)
            more = min(max(wanted - len(self._held), self._ahead), self._size - end)
            fetched = self._fetched(end, more)
            self._held = self._held + fetched if self._held else fetched
            self._ahead = min(2 * self._ahead, _MOST)
        data = self._held if (start, wanted) == (0, len(self._held)) else self._held[start : start + wanted]
        self._at += len(data)
        if not self._ahead:
            self._held = b""
        return data

    def _fetched(self, start: int, length: int) -> bytes:
        if not length:
            return b""
        if not isinstance(self._store, HasVersions):
            return self._store.get_range(self._key, start, length)
        data, version, size = self._store.get_version(self._key, start, length)
        if size != self._size:
            raise changed(self._shown, f"its size changed from {self._size} to {size} bytes")
        if version and self.version and version != self.version:
            raise changed(self._shown)
        self.version = self.version or version
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed, self._held = True, b""


def changed(shown: str, how: str = "") -> DataError:
    return DataError(
        f"{shown} has changed since the dataset was made{how and f': {how}'}. Files must stay as they are while a "
        "dataset reads them: make the dataset again, or write new files to another directory."
    )
