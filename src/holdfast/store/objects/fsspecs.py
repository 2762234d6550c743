"""Any fsspec file system as an object store. How complete and safe its writes are depends on the file system.

fsspec's own "create" checks first and then writes, which is not safe. Only file systems that pass the condition to
their server count as safe; those are tested. If the file system is not an object store, files are written under another
name and renamed. The file system's own timeouts apply.
"""

from __future__ import annotations

import builtins
import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fsspec.spec import AbstractFileSystem

from holdfast.errors import ObjectMissingError
from holdfast.store.objects import transfer
from holdfast.store.objects.base import Level, ObjectInfo
from holdfast.store.objects.patient import DEFAULT_PATIENCE_S, PatientObjects, Shared
from holdfast.store.parallel import in_parallel

# File systems whose objects appear as a whole and need no directories, and whose server checks a "create".
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl"})
_TEMPORARY = ".holdfast-temporary-"


class FsspecObjects(PatientObjects):
    """An ``ObjectStore`` at a path of a file system."""

    def __init__(
        self,
        filesystem: Any,
        root: str,
        url: str,
        *,
        patience_s: float = DEFAULT_PATIENCE_S,
        shared: Shared | None = None,
    ) -> None:
        super().__init__(url, patience_s, shared or Shared())
        self._fs = filesystem
        self._root = str(filesystem._strip_protocol(root)).rstrip("/")
        protocol = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
        self._flat = protocol in _OBJECT_STORES or protocol == "memory"
        self._keeps_directories = not self._flat or getattr(filesystem, "leaves_directories", False)  # even empty ones
        if protocol not in _OBJECT_STORES or not _own(filesystem, "pipe_file"):
            self._common.creates_safely = False

    def get(self, key: str) -> bytes:
        return self._try("read", key, lambda: bytes(self._fs.cat_file(self._full(key))))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        end = start + length
        data = self._try("read", key, lambda: bytes(self._fs.cat_file(self._full(key), start=start, end=end)))
        return transfer.exactly(data, length, self._name(key))

    def put(self, key: str, data: bytes) -> None:
        self._try("write", key, lambda: self._place(key, lambda path: self._fs.pipe_file(path, data)))

    def list(self, prefix: str = "") -> builtins.list[ObjectInfo]:
        found = self._try("list", prefix, lambda: self._listed(self._find, prefix))
        return sorted(self._infos(found, prefix))

    def level(self, prefix: str = "") -> Level:
        found = self._try("list", prefix, lambda: self._listed(self._ls, prefix))
        directories = [self._relative(info["name"]) for info in found if info["type"] == "directory"]
        if self._keeps_directories:
            directories = [name for name in directories if self.list(f"{name}/")]
        return Level(sorted(self._infos(found, prefix)), sorted(name for name in directories if name + "/" != prefix))

    def delete(self, keys: Sequence[str]) -> None:
        in_parallel(self._delete, keys, transfer.STREAMS, "delete")

    def upload(self, path: Path, key: str) -> None:
        self._try("upload", key, lambda: self._place(key, lambda target: self._send(path, target)))

    def download(self, key: str, path: Path, size: int) -> None:
        info = self._try("download", key, lambda: self._info(key))
        if info["size"] != size:
            raise transfer.damaged(self._name(key), size, info["size"])
        tag = str(info.get("ETag") or info.get("mtime") or info.get("created") or "")

        def fetch(start: int, length: int) -> transfer.Part:
            return transfer.Part(self.get_range(key, start, length), size, tag)

        transfer.download_parts(fetch, path, size, self._name(key))

    def with_patience(self, seconds: float) -> FsspecObjects:
        return FsspecObjects(self._fs, self._root, self._url, patience_s=seconds, shared=self._common)

    def _put_new(self, key: str, data: bytes) -> None:
        self._fs.pipe_file(self._full(key), data, mode="create")

    def _place(self, key: str, write: Callable[[str], object]) -> None:
        path = self._full(key)
        if self._flat:
            write(path)
            return
        parent = path.rpartition("/")[0]
        temporary = f"{parent}/{_TEMPORARY}{uuid.uuid4().hex}"
        self._fs.makedirs(parent, exist_ok=True)
        try:
            write(temporary)
            self._fs.mv(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._fs.rm_file(temporary)
            raise

    def _send(self, path: Path, target: str) -> None:
        with transfer.local("read", path):
            source = transfer.Reader(path, self._patience.check_open)
        with source:
            if _own(self._fs, "put_file"):
                self._fs.put_file(str(path), target)  # many per request, if the file system can
                return
            with self._fs.open(target, "wb") as sink:
                shutil.copyfileobj(source, sink, transfer.PART_BYTES)

    def _info(self, key: str) -> dict[str, Any]:
        self._fs.invalidate_cache()
        info: dict[str, Any] = self._fs.info(self._full(key))
        if info["type"] != "file":
            raise FileNotFoundError(key)
        return info

    def _delete(self, key: str) -> None:
        with contextlib.suppress(ObjectMissingError):
            self._try("delete", key, lambda: self._fs.rm_file(self._full(key)))

    def _find(self, path: str) -> builtins.list[dict[str, Any]]:
        return builtins.list(self._fs.find(path, detail=True).values())

    def _ls(self, path: str) -> builtins.list[dict[str, Any]]:
        return builtins.list(self._fs.ls(path, detail=True))

    def _listed(
        self, how: Callable[[str], builtins.list[dict[str, Any]]], prefix: str
    ) -> builtins.list[dict[str, Any]]:
        self._fs.invalidate_cache()  # others write here too
        try:
            return how(self._full(prefix.rstrip("/")))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _infos(self, found: builtins.list[dict[str, Any]], prefix: str) -> Iterator[ObjectInfo]:
        for info in found:
            key = self._relative(info["name"]) if info else ""
            if info and info["type"] == "file" and key.startswith(prefix) and _TEMPORARY not in key:
                yield ObjectInfo(key, info["size"])

    def _full(self, key: str) -> str:
        if ".." in key.split("/"):
            raise ValueError(f"{key!r} is not a key: write a relative path without . and ..")
        return f"{self._root}/{key}" if key else self._root

    def _relative(self, name: str) -> str:
        return str(self._fs._strip_protocol(name))[len(self._root) :].strip("/")


def _own(filesystem: Any, method: str) -> bool:
    """Whether the file system has its own method for this, not only the one that it inherits from fsspec."""
    return getattr(getattr(filesystem, method), "__func__", None) is not getattr(AbstractFileSystem, method)
