"""Files that only grow, stored in an object store as parts: ``name``, ``name.1``, ``name.2``, …, each written as a
whole.

Objects cannot be appended to. So when the file has grown, the last part is uploaded again, until it has its full size.
The joined parts of a file are its content at the last upload.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path

from holdfast.store.objects.base import ObjectStore
from holdfast.store.regular import open_regular
from holdfast.store.remote.fetch import get_all

PART = 4 << 20  # bytes
_NUMBER = re.compile(r"\.[1-9][0-9]*")


class PartUploader:
    """Uploads one local file, and then what is added to it. Not thread-safe.

    Existing objects of that name are ignored: two files never share a name, because each driver starts new attempts.
    """

    def __init__(self, objects: ObjectStore, key: str, path: Path, part_size: int = PART) -> None:
        self._objects = objects
        self._key = key
        self._path = path
        self._part_size = part_size
        self._done = 0  # bytes that are in the store

    def sync(self) -> None:
        """Upload the new part. After an error, the next call starts with this part again."""
        with io.BufferedReader(open_regular(self._path)) as file:
            while True:
                start = self._done - self._done % self._part_size
                file.seek(start)
                data = file.read(self._part_size)
                if start + len(data) <= self._done:
                    return
                self._objects.put(part_key(self._key, start // self._part_size), data)
                self._done = start + len(data)


def part_key(key: str, number: int) -> str:
    return f"{key}.{number}" if number else key


def fetch(objects: ObjectStore, key: str) -> bytes:
    """The content of a file in the store; empty if there is none. Missing parts are left out."""
    directory = key.rpartition("/")[0]
    keys = [info.key for info in objects.list(f"{directory}/" if directory else "")]
    content = get_all(objects, files_of(keys).get(key, []))
    return b"".join(data for data in content if data is not None)


def files_of(keys: Iterable[str]) -> dict[str, list[str]]:
    """The parts of each file, in order. A name that looks like a part, but has no first part, is a file of its own."""
    present = set(keys)
    files: dict[str, list[str]] = {}
    for key in sorted(present):
        stem, dot, number = key.rpartition(".")
        is_part = bool(_NUMBER.fullmatch(dot + number)) and stem in present
        files.setdefault(stem if is_part else key, []).append(key)
    for first, parts in files.items():
        parts.sort(key=lambda key, first=first: int(key[len(first) + 1 :] or 0))  # type: ignore[misc]
    return files
