"""A reference to a directory of files. It holds a path, never the content, so it is cheap to pass and to pickle."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import ObjectMissingError
from holdfast.store import download
from holdfast.store.location import MISSING, NOT_A_DIRECTORY, Location

METADATA_FILE = ".metadata.json"


class Checkpoint:
    """A checkpoint directory, local or in an object store. Two checkpoints are equal if they have the same path.

    Open its files with ``as_directory()`` (local files are not copied), or copy them with ``to_directory()``.
    ``filesystem`` is a configured obstore, fsspec or pyarrow file system that contains ``path``.
    """

    def __init__(self, path: str | os.PathLike[str] | Location, filesystem: Any = None) -> None:
        self.location = Location.parse("Checkpoint(path", path, filesystem)
        self.path = str(self.location)  # the local directory, or the URL without its options
        self._given_filesystem = self.location.filesystem if filesystem is None else filesystem
        # Pickled along, so that all processes that got this object agree on one temporary directory.
        self._uuid = uuid.uuid4().hex
        self._held = ""

    @property
    def filesystem(self) -> Any:
        """The file system that you passed, or a pyarrow one for this disk or bucket; ``path`` is a path in it."""
        return self.location.as_filesystem() if self._given_filesystem is None else self._given_filesystem

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Create a checkpoint from a local directory, to report it. This copies and reads nothing."""
        return cls(path)

    @classmethod
    def held(cls, location: Location, directory: str) -> Checkpoint:
        """The checkpoint there; ``directory`` has its verified files on this machine, or is "" if there are none."""
        checkpoint = cls(location)
        checkpoint._held = directory
        return checkpoint

    def exists(self) -> bool:
        """Return whether any file exists there. Raises an error if storage does not answer."""
        return download.exists(self.location)

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        """Open the directory with the files, for reading.

        Local files are used in place: nothing is copied or cleaned up. Remote files are downloaded once per machine,
        and removed when the last user leaves the context.
        """
        local = self._local()
        if local is not None:
            yield local
            return
        with download.shared(download.look(self.location), self._uuid) as directory:
            yield directory

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the files to ``path``, or to a new temporary directory that the caller deletes. Return the directory.

        If several processes of a machine copy to the same directory in parallel, one copies and the others wait.
        """
        local = self._local()
        if path is None:
            return self._to_temporary_directory(local)
        target = os.path.abspath(os.path.expanduser(os.fspath(path)))
        with download.lock(target) as waited:
            if not (waited and os.path.isdir(target)):
                self._copy(local, target)
        return target

    def _to_temporary_directory(self, local: str | None) -> str:
        target = os.path.join(download.own_directory(), f"checkpoint_tmp_{self._uuid}")
        with download.lock(target):
            if not os.path.isdir(target):
                partial = f"{target}.part"
                shutil.rmtree(partial, ignore_errors=True)
                try:
                    self._copy(local, partial)
                except BaseException:
                    shutil.rmtree(partial, ignore_errors=True)
                    raise
                os.rename(partial, target)
        return target

    def _copy(self, local: str | None, target: str) -> None:
        if local is None:
            download.fetch(download.look(self.location), Path(target))
        else:
            shutil.copytree(local, target, dirs_exist_ok=True)

    def _local(self) -> str | None:
        """Where this machine has the files; None if they must be downloaded."""
        here = self.location.directory_here()
        if not here:
            return self._held if self._held and os.path.isdir(self._held) else None
        self._check_exists()
        return here

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata that ``set_metadata`` stored; an empty dict if there is none."""
        file = f"{self.path}/{METADATA_FILE}"
        text = self._read_metadata()
        if text is None:
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
        """Store a dict of JSON values beside the files, replacing an earlier one."""
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
        self._write_metadata(text.encode())

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Add these values to the metadata, replacing those with the same names."""
        self.set_metadata({**self.get_metadata(), **metadata})

    def _read_metadata(self) -> bytes | None:
        try:
            return self.location.open(download.PATIENCE_S).get(METADATA_FILE)
        except ObjectMissingError:
            return None

    def _write_metadata(self, data: bytes) -> None:
        self.location.open(download.PATIENCE_S).put(METADATA_FILE, data)

    def _check_exists(self) -> None:
        if self.exists():
            return
        is_file = self.location.local_problem == NOT_A_DIRECTORY
        what = NOT_A_DIRECTORY if is_file else f"{MISSING} (deleted, moved, or on another host)"
        raise FileNotFoundError(f"The checkpoint {self.path} {what}; a checkpoint is a directory of files")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": ""}  # elsewhere that directory may hold anything

    def __fspath__(self) -> str:
        raise TypeError(
            "A Checkpoint is not a path. Use checkpoint.as_directory(), checkpoint.to_directory() or .path."
        )

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem={self.location.root.partition(':')[0] or 'local'}, path={self.path})"

    def __eq__(self, other: object) -> bool:
        return self.location == other.location if isinstance(other, Checkpoint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.location)
