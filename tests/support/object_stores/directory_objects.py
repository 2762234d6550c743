"""An object store in a directory, for tests with several processes: whole writes, and safe creates by hard links."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import ObjectExistsError, ObjectMissingError
from holdfast.store.objects.base import ObjectInfo


class DirectoryObjects:
    creates_safely = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = f"file://{root}"

    def get(self, key: str) -> bytes:
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            raise ObjectMissingError(key) from None

    def put(self, key: str, data: bytes) -> None:
        os.replace(self._written(key, data), self._root / key)

    def create(self, key: str, data: bytes) -> None:
        temporary = self._written(key, data)
        try:
            os.link(temporary, self._root / key)
        except FileExistsError:
            raise ObjectExistsError(key) from None
        finally:
            temporary.unlink()

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        paths = sorted((self._root / prefix).rglob("*"))
        return [
            ObjectInfo(path.relative_to(self._root).as_posix(), path.stat().st_size)
            for path in paths
            if path.is_file() and not path.name.startswith(".")
        ]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            (self._root / key).unlink(missing_ok=True)

    def with_patience(self, _seconds: float) -> DirectoryObjects:
        return self

    def _written(self, key: str, data: bytes) -> Path:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{uuid.uuid4().hex}"
        temporary.write_bytes(data)
        return temporary
