"""A text file that grows, in the run's directory or in a temporary directory from which it is uploaded."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.store.location import Location
from holdfast.store.remote.parts import PartUploader

log = logging.getLogger(__name__)
_UPLOAD_EVERY_S = 10.0
_PATIENCE_S = 10.0


class GrowingFile:
    """Not thread-safe."""

    def __init__(self, location: Location, name: str) -> None:
        self._temporary = tempfile.mkdtemp(prefix="holdfast-file-") if location.takes_uploads else ""
        self._path = Path(location.directory_here(self._temporary)) / name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "a", encoding="utf-8", errors="backslashreplace")
        self._objects = location.open(_PATIENCE_S) if self._temporary else None
        self._uploader = PartUploader(self._objects, name, self._path) if self._objects is not None else None
        self._uploaded_at = time.monotonic()

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._objects is not None:
            self.upload()
            self._objects.close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()
        if self.due() == 0:
            self.upload()

    def due(self) -> float | None:
        """Seconds until the next upload; None if there is none."""
        if self._uploader is None:
            return None
        return max(0.0, self._uploaded_at + _UPLOAD_EVERY_S - time.monotonic())

    def upload(self) -> None:
        """Upload what is new. If the store is unavailable, the next call tries again."""
        self._uploaded_at = time.monotonic()
        if self._uploader is None:
            return
        try:
            self._uploader.sync()
        except StorageError as error:
            log.debug("%s could not be uploaded: %s", self._path.name, error)
