"""An object store for drills: a directory that stops answering, or answers late, when the fault says so."""

from __future__ import annotations

import builtins
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.drill.stage import Stage
from holdfast.store.location import Location
from holdfast.store.objects.base import Level, ObjectInfo
from holdfast.store.objects.files import FileObjects
from holdfast.store.objects.patient import PatientObjects, Shared

_ROOT = "drill:/"
_LATE_S = 0.1
_T = TypeVar("_T")


class FarLocation(Location):
    """A directory that the product treats as remote. It is pickled to agents and workers as it is."""

    @staticmethod
    def at(directory: Path, stage: Path) -> FarLocation:
        return FarLocation(_ROOT, str(directory).strip("/"), (("stage", str(stage)),))

    def open(self, patience_s: float) -> FarObjects:
        return FarObjects(Path("/", self.key), Stage(Path(dict(self.options)["stage"])), patience_s, Shared())


class FarObjects(PatientObjects):
    def __init__(self, directory: Path, stage: Stage, patience_s: float, shared: Shared) -> None:
        super().__init__(f"{_ROOT}/{str(directory).strip('/')}", patience_s, shared)
        self._directory, self._stage = directory, stage
        self._files = FileObjects(directory)
        self._requests = itertools.count(1)

    def _ask(self, action: str, key: str, request: Callable[[], _T]) -> _T:
        def attempt() -> _T:
            fault = self._stage.fault
            if fault is not None and self._stage.is_on():
                if fault.name == "outage":
                    raise ConnectionError(f"no answer (holdfast drill: {fault})")
                time.sleep(_LATE_S)
                if next(self._requests) % 3 == 0:
                    raise OSError(f"status code: 503 SlowDown (holdfast drill: {fault})")
            return request()

        return self._try(action, key, attempt)

    def get(self, key: str) -> bytes:
        return self._ask("read", key, lambda: self._files.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._ask("read", key, lambda: self._files.get_range(key, start, length))

    def put(self, key: str, data: bytes) -> None:
        self._ask("write", key, lambda: self._files.put(key, data))

    def _put_new(self, key: str, data: bytes) -> None:
        self._files.create(key, data)

    def create(self, key: str, data: bytes) -> None:
        self._ask("create", key, lambda: self._put_new(key, data))

    @property
    def creates_safely(self) -> bool:
        return True

    def list(self, prefix: str = "") -> builtins.list[ObjectInfo]:
        return self._ask("list", prefix, lambda: self._files.list(prefix))

    def level(self, prefix: str = "") -> Level:
        return self._ask("list", prefix, lambda: self._files.level(prefix))

    def delete(self, keys: Sequence[str]) -> None:
        self._ask("delete", keys[0] if keys else "", lambda: self._files.delete(keys))

    def upload(self, path: Path, key: str) -> None:
        self._ask("upload", key, lambda: self._files.upload(path, key))

    def download(self, key: str, path: Path, size: int) -> None:
        self._ask("download", key, lambda: self._files.download(key, path, size))

    def with_patience(self, seconds: float) -> FarObjects:
        return FarObjects(self._directory, self._stage, seconds, self._common)
