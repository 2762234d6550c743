"""An object store for one look at a run: each listing and each small object is requested only once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import ObjectMissingError
from holdfast.store.objects.base import Level, ObjectInfo, ObjectStore

_SMALL, _MOST = 1 << 18, 8 << 20  # bytes of one object that is kept, and of all of them
_LISTED_WHOLE = "metrics/"  # one listing of it serves the listings of all attempts


class OnceObjects:
    """The answers of reading requests are kept until ``forget``. All other requests are passed on."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        with self._lock:
            self._content: dict[str, bytes] = {}
            self._lists: dict[str, list[ObjectInfo]] = {}
            self._levels: dict[str, Level] = {}
            self._kept = 0

    @property
    def url(self) -> str:
        return self._objects.url

    @property
    def creates_safely(self) -> bool:
        return self._objects.creates_safely

    def get(self, key: str) -> bytes:
        known = self._content.get(key)
        if known is not None:
            return known
        try:
            found = self._objects.get(key)
        except ObjectMissingError:  # a listing that names it is out of date
            self.forget()
            raise
        with self._lock:
            if len(found) <= _SMALL and self._kept + len(found) <= _MOST:
                self._content[key] = found
                self._kept += len(found)
        return found

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        wide = _LISTED_WHOLE if prefix.startswith(_LISTED_WHOLE) else prefix
        with self._lock:  # callers that ask meanwhile wait for the same answer
            if wide not in self._lists:
                self._lists[wide] = self._objects.list(wide)
            return [info for info in self._lists[wide] if info.key.startswith(prefix)]

    def level(self, prefix: str = "") -> Level:
        with self._lock:
            if prefix not in self._levels:
                self._levels[prefix] = self._objects.level(prefix)
            return self._levels[prefix]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._objects.get_range(key, start, length)

    def put(self, key: str, data: bytes) -> None:
        self._objects.put(key, data)

    def create(self, key: str, data: bytes) -> None:
        self._objects.create(key, data)

    def delete(self, keys: Sequence[str]) -> None:
        self._objects.delete(keys)

    def upload(self, path: Path, key: str) -> None:
        self._objects.upload(path, key)

    def download(self, key: str, path: Path, size: int) -> None:
        self._objects.download(key, path, size)

    def with_patience(self, seconds: float) -> ObjectStore:
        return self._objects.with_patience(seconds)

    def close(self) -> None:
        self._objects.close()
