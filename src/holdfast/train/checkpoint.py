"""A reference to a directory of files. It holds a path, never the content, so it is cheap to pass and to pickle."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.train.paths import local_path

METADATA_FILE = ".metadata.json"


class Checkpoint:
    """A checkpoint directory. Two checkpoints are equal if they have the same path.

    Take its files with ``as_directory()`` (no copy where they are local), or copy them with ``to_directory()``.
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        self.path = local_path("Checkpoint(path", path, filesystem)
        self.filesystem = filesystem
        # Pickled along, so that all processes that got this object agree on one temporary directory.
        self._uuid = uuid.uuid4().hex

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        return cls(path)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """The directory with the files, for reading. It is the checkpoint itself: nothing is copied or cleaned up."""
        self._check_exists()
        yield self.path

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to ``path``, or to a new temporary directory that the caller deletes; returns where.

        When several processes of a machine do this at once with the same target, one copies and the others wait.
        """
        self._check_exists()
        if path is None:
            return self._to_temporary_directory()
        target = os.path.abspath(os.path.expanduser(os.fspath(path)))
        with _lock(target) as waited:
            if not (waited and os.path.isdir(target)):
                shutil.copytree(self.path, target, dirs_exist_ok=True)
        return target

    def _to_temporary_directory(self) -> str:
        target = os.path.join(tempfile.gettempdir(), f"checkpoint_tmp_{self._uuid}")
        with _lock(target):
            if not os.path.isdir(target):
                partial = f"{target}.part"
                shutil.rmtree(partial, ignore_errors=True)
                try:
                    shutil.copytree(self.path, partial)
                except BaseException:
                    shutil.rmtree(partial, ignore_errors=True)
                    raise
                os.rename(partial, target)
        return target

    def get_metadata(self) -> dict[str, Any]:
        """What ``set_metadata`` stored; an empty dict if nothing was."""
        file = Path(self.path, METADATA_FILE)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            self._check_exists()
            return {}
        try:
            metadata = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{file} is damaged ({error}); write it again with set_metadata()") from error
        if not isinstance(metadata, dict):
            raise ValueError(f"{file} holds no JSON object; write it again with set_metadata()")
        return metadata

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Store a dict of JSON values beside the files, in the place of an earlier one."""
        if not isinstance(metadata, dict):
            raise TypeError(f"set_metadata(metadata={metadata!r}): pass a dict")
        self._check_exists()
        try:
            text = json.dumps(metadata)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"set_metadata(metadata): {error}; pass JSON values (numbers, strings, lists, dicts), and save "
                "anything else as a file of the checkpoint"
            ) from error
        partial = Path(self.path, f"{METADATA_FILE}.{uuid.uuid4().hex}.part")
        try:
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, Path(self.path, METADATA_FILE))
        finally:
            partial.unlink(missing_ok=True)

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        self.set_metadata({**self.get_metadata(), **metadata})

    def _check_exists(self) -> None:
        if not os.path.isdir(self.path):
            what = (
                "is no directory"
                if os.path.exists(self.path)
                else "does not exist (deleted, moved, or on another host)"
            )
            raise FileNotFoundError(f"The checkpoint {self.path} {what}; a checkpoint is a directory of files")

    def __fspath__(self) -> str:
        raise TypeError("A Checkpoint is no path: use checkpoint.as_directory(), checkpoint.to_directory() or .path")

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem=local, path={self.path})"

    def __eq__(self, other: object) -> bool:
        return self.path == other.path if isinstance(other, Checkpoint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.path)


@contextmanager
def _lock(target: str) -> Iterator[bool]:
    """Hold the machine-wide lock on ``target``; yields whether another process held it before."""
    digest = hashlib.sha256(target.encode(errors="surrogateescape")).hexdigest()[:32]
    path = os.path.join(tempfile.gettempdir(), f"holdfast-copy-{digest}.lock")
    waited = False
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = True
                fcntl.flock(fd, fcntl.LOCK_EX)
            # The holder before us removed the file: ours is a lock that nobody else can see any more.
            if not _is_same_file(fd, path):
                continue
            try:
                yield waited
            finally:
                os.unlink(path)
            return
        finally:
            os.close(fd)


def _is_same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
