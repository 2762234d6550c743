"""An object store in memory, strongly consistent, that fails exactly where a test says.

A ``Bucket`` is the stored content. Each ``FakeObjects`` is one process that talks to it. A crashed process makes no
further requests: each one that it tries crashes again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

from holdfast.errors import (
    CheckpointDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    StorageUnavailableError,
)
from holdfast.store.objects.base import Level, ObjectInfo

PAGE = 1000  # how many keys a listing returns with one request
_T = TypeVar("_T")


class Crash(BaseException):
    """The process died here."""


class ObjectFault(Enum):
    CRASH_BEFORE = "the process dies before the request is sent"
    CRASH_AFTER = "the request takes place, and the process dies"
    REFUSED = "nothing takes place, and patience ends"
    LOST_REPLY = "the request takes place, but patience ends without an answer"
    DELAYED = "patience ends without an answer, and the request takes place at land()"


@dataclass
class Bucket:
    content: dict[str, bytes] = field(default_factory=dict)
    creates_safely: bool = True
    lock: threading.RLock = field(default_factory=threading.RLock)

    def flip(self, key: str, bit: int) -> None:
        """Damage one bit of a stored object. Bits are counted from the start, and wrap around at the end."""
        with self.lock:
            data = bytearray(self.content[key])
            data[bit // 8 % len(data)] ^= 1 << bit % 8
            self.content[key] = bytes(data)

    def below(self, prefix: str) -> list[ObjectInfo]:
        return [ObjectInfo(key, len(self.content[key])) for key in sorted(self.content) if key.startswith(prefix)]


class FakeObjects:
    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket or Bucket()
        self.counts: Counter[str] = Counter()
        self.steps = 0  # requests so far; each key of a deletion counts, because each can be the last one
        self.before: Callable[[int, str, str], None] | None = None  # called with the step, the kind and the key
        self._faults: dict[int, ObjectFault] = {}
        self._late: list[Callable[[], object]] = []
        self._dead = False

    @property
    def url(self) -> str:
        return "memory://bucket/runs/run"

    @property
    def creates_safely(self) -> bool:
        return self.bucket.creates_safely

    def fail(self, step: int, fault: ObjectFault) -> None:
        """Make request number ``step`` fail, counted from 0 since the start."""
        self._faults[step] = fault

    def land(self) -> None:
        """Delayed requests take effect now."""
        late, self._late = self._late, []
        for effect in late:
            with self.bucket.lock:
                _unanswered(effect)

    def get(self, key: str) -> bytes:
        self.counts["get"] += 1
        return self._request("get", key, lambda: self._content(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.counts["get"] += 1
        return self._request("get", key, lambda: self._content(key)[start : start + length])

    def put(self, key: str, data: bytes) -> None:
        self.counts["put"] += 1
        self._request("put", key, lambda: self._store(key, data))

    def create(self, key: str, data: bytes) -> None:
        self.counts["create"] += 1
        if not self.creates_safely:
            self._request("look", key, lambda: self._refuse_taken(key, data))
            self._request("put", key, lambda: self._store(key, data))
            return

        def effect() -> None:
            self._refuse_taken(key, data)
            self._store(key, data)

        self._request("create", key, effect)

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        found = self._request("list", prefix, lambda: self.bucket.below(prefix))
        self.counts["list"] += 1 + max(0, len(found) - 1) // PAGE
        return found

    def level(self, prefix: str = "") -> Level:
        found = self._request("list", prefix, lambda: self.bucket.below(prefix))
        objects = [info for info in found if "/" not in info.key[len(prefix) :]]
        deeper = {prefix + info.key[len(prefix) :].split("/")[0] for info in found if "/" in info.key[len(prefix) :]}
        self.counts["list"] += 1 + max(0, len(objects) + len(deeper) - 1) // PAGE
        return Level(objects, sorted(deeper))

    def delete(self, keys: Sequence[str]) -> None:
        self.counts["delete"] += -(-len(keys) // PAGE)
        for key in keys:
            self._request("delete", key, lambda key=key: self.bucket.content.pop(key, None))  # type: ignore[misc]

    def upload(self, path: Path, key: str) -> None:
        self.put(key, path.read_bytes())

    def download(self, key: str, path: Path, size: int) -> None:
        data = self.get(key)
        if len(data) != size:
            raise CheckpointDamagedError(f"{self.url}/{key} has {len(data)} bytes instead of {size}")
        path.write_bytes(data)

    def with_patience(self, seconds: float) -> FakeObjects:
        return self

    def close(self) -> None:
        pass

    def _request(self, kind: str, key: str, effect: Callable[[], _T]) -> _T:
        with self.bucket.lock:
            step = self.steps
            self.steps += 1
        if self.before is not None:
            self.before(step, kind, key)
        with self.bucket.lock:
            fault = self._faults.get(step)
            self._dead = self._dead or fault is ObjectFault.CRASH_BEFORE
            if self._dead:
                raise Crash(f"before {kind} {key}")
            if fault is ObjectFault.DELAYED:
                self._late.append(effect)
            if fault in (ObjectFault.REFUSED, ObjectFault.DELAYED):
                raise StorageUnavailableError(f"{self.url}/{key}: no answer to a {kind}")
            if fault is ObjectFault.LOST_REPLY:
                _unanswered(effect)
                raise StorageUnavailableError(f"{self.url}/{key}: no answer to a {kind}")
            if fault is ObjectFault.CRASH_AFTER:
                self._dead = True
                _unanswered(effect)
                raise Crash(f"after {kind} {key}")
            return effect()

    def _content(self, key: str) -> bytes:
        try:
            return self.bucket.content[key]
        except KeyError:
            raise ObjectMissingError(f"{self.url}/{key} does not exist") from None

    def _store(self, key: str, data: bytes) -> None:
        self.bucket.content[key] = bytes(data)

    def _refuse_taken(self, key: str, data: bytes) -> None:
        if self.bucket.content.get(key, data) != data:
            raise ObjectExistsError(f"{self.url}/{key} exists already")


def _unanswered(effect: Callable[[], object]) -> None:
    with contextlib.suppress(ObjectExistsError, ObjectMissingError):
        effect()
