"""Object stores through obstore: S3 and compatible servers, Google's, Azure's, memory, a local directory.

obstore's own retries are kept short and ours surround them, so ``close`` and the end of the patience take effect within
seconds. obstore must not be used in a process that was forked after its first use: its threads do not exist there.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import obstore

from holdfast.errors import (
    ObjectMissingError,
    StorageError,
)
from holdfast.store.objects import transfer
from holdfast.store.objects.base import Level, ObjectInfo, VersionedRange
from holdfast.store.objects.patient import DEFAULT_PATIENCE_S, PatientObjects, Shared

REQUEST_TIMEOUT_S = 60.0  # per request: 12 parts of 8 MiB at a time must get through a slow connection
CONNECT_TIMEOUT_S = 5.0
INNER_RETRY_S = 5.0
DELETE_BATCH = 1000  # the limit of S3 per request

_NOT_PARTIAL = "Received non-partial response"
_T = TypeVar("_T")
_runtime_pid: int | None = None


class ObstoreObjects(PatientObjects):
    """An ``ObjectStore`` on any of obstore's stores, at a prefix inside it."""

    def __init__(
        self,
        store: Any,
        url: str,
        *,
        prefix: str = "",
        patience_s: float = DEFAULT_PATIENCE_S,
        shared: _Shared | None = None,
    ) -> None:
        self._shared = shared or _Shared(store)
        super().__init__(url, patience_s, self._shared)
        self._prefix = prefix.strip("/")

    def get(self, key: str) -> bytes:
        return self._try("read", key, lambda: bytes(self._whole(key)))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        return transfer.exactly(self.get_version(key, start, length).data, length, self._name(key))

    def get_version(self, key: str, start: int, length: int) -> VersionedRange:
        if self._shared.ranged:
            try:
                part = self._try("read", key, lambda: self._part(key, start, length))
                return VersionedRange(bytes(part.data), part.tag or "", part.size)
            except transfer.NoRangesError:
                self._shared.ranged = False
        whole = self.get(key)
        return VersionedRange(whole[start : start + length], "", len(whole))

    def put(self, key: str, data: bytes) -> None:
        self._try("write", key, lambda: obstore.put(self._store, self._full(key), data, use_multipart=False))

    def list(self, prefix: str = "") -> builtins.list[ObjectInfo]:
        found = self._try("list", prefix, lambda: obstore.list(self._store, self._full(prefix) or None).collect())
        return self._infos(found, prefix)

    def level(self, prefix: str = "") -> Level:
        found = self._try("list", prefix, lambda: obstore.list_with_delimiter(self._store, self._full(prefix) or None))
        return Level(self._infos(found["objects"], prefix), sorted(map(self._relative, found["common_prefixes"])))

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), DELETE_BATCH):
            batch = keys[start : start + DELETE_BATCH]
            try:
                self._try("delete", batch[0], lambda batch=batch: self._delete(batch))  # type: ignore[misc]
            except ObjectMissingError:  # the batch ended at a key that no longer exists; some stores report that
                for key in batch:
                    self._delete_one(key)

    def written_at(self, key: str) -> float:
        modified: datetime = self._try("read", key, lambda: obstore.head(self._store, self._full(key)))["last_modified"]
        return modified.timestamp()

    def upload(self, path: Path, key: str) -> None:
        self._try("upload", key, lambda: self._upload(path, key))

    def download(self, key: str, path: Path, size: int) -> None:
        name = self._name(key)
        if size > transfer.PART_BYTES and self._shared.ranged:
            try:
                transfer.download_parts(
                    lambda start, length: self._try("download", key, lambda: self._part(key, start, length)),
                    path,
                    size,
                    name,
                )
                return
            except transfer.NoRangesError:
                self._shared.ranged = False
        self._try("download", key, lambda: transfer.download_whole(self._chunks(key, size), path, size, name))

    def with_patience(self, seconds: float) -> ObstoreObjects:
        return ObstoreObjects(None, self._url, prefix=self._prefix, patience_s=seconds, shared=self._shared)

    @property
    def _store(self) -> Any:
        self._patience.check_open()
        return self._shared.store(max(1.0, min(REQUEST_TIMEOUT_S, self._patience.seconds)))

    def _whole(self, key: str) -> Any:
        answer = obstore.get(self._store, self._full(key))
        data = answer.bytes()
        if len(data) != answer.meta["size"]:
            raise ConnectionError(f"only {len(data)} of {answer.meta['size']} bytes arrived")
        return data

    def _part(self, key: str, start: int, length: int) -> transfer.Part:
        try:
            answer = obstore.get(self._store, self._full(key), options={"range": (start, start + length)})
        except obstore.exceptions.GenericError as error:
            if _NOT_PARTIAL in str(error):
                raise transfer.NoRangesError(f"{self._name(key)}: the server ignores ranges") from error
            raise
        size, data = answer.meta["size"], answer.bytes()
        if len(data) != min(length, max(size - start, 0)):
            raise ConnectionError(f"only {len(data)} of {length} bytes arrived")
        return transfer.Part(data, size, answer.meta["e_tag"])

    def _chunks(self, key: str, size: int) -> Any:
        answer = obstore.get(self._store, self._full(key))
        found = answer.meta["size"]
        if found != size:
            del answer  # the error keeps this frame alive, and an unread answer keeps its connection open
            raise transfer.damaged(self._name(key), size, found)
        return answer.stream(transfer.PART_BYTES)

    def _upload(self, path: Path, key: str) -> None:
        with transfer.local("read", path):
            file = transfer.Reader(path, self._patience.check_open)
        with file:
            part = transfer.part_bytes(os.fstat(file.fileno()).st_size)
            obstore.put(self._store, self._full(key), file, chunk_size=part, max_concurrency=transfer.STREAMS)

    def _put_new(self, key: str, data: bytes) -> None:
        obstore.put(self._store, self._full(key), data, mode="create")

    def _delete(self, keys: Sequence[str]) -> None:
        obstore.delete(self._store, [self._full(key) for key in keys])

    def _delete_one(self, key: str) -> None:
        with contextlib.suppress(ObjectMissingError):
            self._try("delete", key, lambda: self._delete([key]))

    def _infos(self, found: Sequence[Any], prefix: str) -> builtins.list[ObjectInfo]:
        """Sorted by key, without the empty objects that web consoles create for directories."""
        infos = (ObjectInfo(self._relative(meta["path"]), meta["size"]) for meta in found)
        return sorted(info for info in infos if info.key not in ("", prefix.rstrip("/")))

    def _try(self, action: str, key: str, attempt: Callable[[], _T]) -> _T:
        _check_process()
        return super()._try(action, key, attempt)

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _relative(self, full: str) -> str:
        return full[len(self._prefix) + 1 :] if self._prefix else full


class _Shared(Shared):
    """Closes its connections when it is closed."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.ranged = True
        self._given = given
        self._bounded: dict[float, Any] = {}
        self._bounding = threading.Lock()

    def store(self, timeout_s: float) -> Any:
        with self._bounding:
            if timeout_s not in self._bounded:
                self._bounded[timeout_s] = bounded(self._given, timeout_s)
            return self._bounded[timeout_s]

    def close(self) -> None:
        super().close()
        with self._bounding:
            self._bounded.clear()


def bounded(store: Any, timeout_s: float) -> Any:
    """The store with timeouts and short retries, unless its user has set them."""
    if not hasattr(store, "retry_config"):
        return store  # memory and local directories
    client = {
        "connect_timeout": f"{CONNECT_TIMEOUT_S:g}s",
        "timeout": f"{timeout_s:g}s",
        **(store.client_options or {}),
    }
    retries = {"max_retries": 3, "retry_timeout": timedelta(seconds=min(INNER_RETRY_S, timeout_s))}
    return type(store)(
        prefix=store.prefix,
        config=store.config,
        client_options=client,
        retry_config=store.retry_config or retries,
        credential_provider=store.credential_provider,
    )


def _check_process() -> None:
    global _runtime_pid
    if _runtime_pid is None:
        _runtime_pid = os.getpid()
    elif _runtime_pid != os.getpid():
        raise StorageError(
            "An object store was used before this process was forked from its parent, and cannot be used here. Start "
            "the process with spawn instead of fork, or use the store first after the fork."
        )
