"""A location as a file system of pyarrow, for scripts that read and copy files with ``result.filesystem``.

Paths are with or without the scheme, as ``str(location)`` or as Ray writes them: ``s3://bucket/key``, ``bucket/key``.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import obstore
from pyarrow import PythonFile, fs

from holdfast.store.objects import opening

if TYPE_CHECKING:
    from holdfast.store.location import Location

_BUFFER = 8 << 20


def arrow_filesystem(location: Location) -> Any:
    """A file system for the whole disk or bucket that the location is in."""
    if location.path is not None:
        return fs.LocalFileSystem()
    return fs.PyFileSystem(BucketHandler(location))


class BucketHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """What pyarrow calls. Directories are the parts of names before a slash, so there is nothing to create."""

    def __init__(self, location: Location) -> None:
        self.location, self._root = location, location.root
        self._store = opening.build(location)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketHandler) and self._root == other._root

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get_type_name(self) -> str:
        return f"py::{self._root.partition(':')[0]}"

    def normalize_path(self, path: str) -> str:
        return path.partition("://")[2] or path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(self.normalize_path(path)) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        base = self.normalize_path(selector.base_dir).rstrip("/")
        prefix = self._key(base)
        found: dict[str, Any] = {}
        for chunk in obstore.list(self._store, prefix=f"{prefix}/" if prefix else None):
            for entry in chunk:
                below = entry["path"][len(prefix) :].lstrip("/")
                *above, _ = below.split("/")
                for depth in range(len(above) if selector.recursive else min(1, len(above))):
                    name = f"{base}/{'/'.join(above[: depth + 1])}"
                    found.setdefault(name, fs.FileInfo(name, fs.FileType.Directory))
                if selector.recursive or not above:
                    found[f"{base}/{below}"] = _file(f"{base}/{below}", entry)
        if not found and not selector.allow_not_found:
            raise FileNotFoundError(base)
        return list(found.values())

    def create_dir(self, path: str, recursive: bool) -> None: ...

    def delete_dir(self, path: str) -> None:
        self.delete_dir_contents(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        found = [e["path"] for chunk in obstore.list(self._store, prefix=f"{self._key(path)}/") for e in chunk]
        if not found and not missing_dir_ok:
            raise FileNotFoundError(path)
        if found:
            obstore.delete(self._store, found)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError(f"{self._root}: deleting a whole bucket is refused; name a directory")

    def delete_file(self, path: str) -> None:
        obstore.delete(self._store, self._key(path))

    def move(self, src: str, dest: str) -> None:
        obstore.rename(self._store, self._key(src), self._key(dest))

    def copy_file(self, src: str, dest: str) -> None:
        obstore.copy(self._store, self._key(src), self._key(dest))

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> Any:
        size = obstore.head(self._store, self._key(path))["size"]
        return PythonFile(io.BufferedReader(_Ranged(self._store, self._key(path), size), _BUFFER), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return PythonFile(_Written(obstore.open_writer(self._store, self._key(path))), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError(f"{path}: an object cannot be appended to; write it again")

    def _info(self, path: str) -> Any:
        key = self._key(path)
        try:
            return _file(path, obstore.head(self._store, key))
        except FileNotFoundError:
            found = obstore.list_with_delimiter(self._store, f"{key}/" if key else None)
            exists = found["objects"] or found["common_prefixes"]
            return fs.FileInfo(path, fs.FileType.Directory if exists else fs.FileType.NotFound)

    def _key(self, path: str) -> str:
        bucket = self._root.partition("://")[2]
        return self.normalize_path(path).strip("/").removeprefix(bucket).lstrip("/")


class _Ranged(io.RawIOBase):
    """An object. Only the parts that are read are fetched."""

    def __init__(self, store: Any, key: str, size: int) -> None:
        self._store, self._key, self._size, self._at = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = memoryview(obstore.get_range(self._store, self._key, start=self._at, end=end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Written(io.RawIOBase):
    """An object that is written. It exists once it is closed."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._writer.write(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._writer.close()
        super().close()


def _file(path: str, entry: Any) -> Any:
    return fs.FileInfo(path, fs.FileType.File, size=entry["size"], mtime=entry["last_modified"])
