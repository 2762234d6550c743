"""What loggers write for trials whose storage is remote: uploaded when a trial ends, and when the experiment does."""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.store.location import Location

log = logging.getLogger(__name__)


class Artifacts:
    def __init__(self, experiment: Location, local_root: Path, patience_s: float) -> None:
        self._experiment, self._root, self._patience_s = experiment, local_root, patience_s

    def open(self) -> None:
        """Trials are about to run: ``close`` must be called from now on."""
        self._objects = self._experiment.open(self._patience_s)
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="holdfast-artifacts")

    def ended(self, directory: str) -> None:
        """A trial will write nothing more."""
        self._pool.submit(self._save, directory, True)

    def close(self) -> None:
        for path in sorted(self._root.iterdir()) if self._root.is_dir() else ():
            self._pool.submit(self._save, path.name, False) if path.is_dir() else self._pool.submit(self._upload, path)
        self._pool.shutdown(wait=True)
        self._objects.close()

    def _upload(self, path: Path) -> None:
        """Upload the files of the experiment itself."""
        try:
            self._objects.upload(path, path.name)
        except (StorageError, OSError) as error:
            log.warning("%s is not in storage: %s", path.name, error)

    def _save(self, directory: str, is_last: bool) -> None:
        home = self._root / directory
        try:
            for path in sorted(home.rglob("*")):
                if path.is_file():
                    self._objects.upload(path, f"{directory}/{path.relative_to(home).as_posix()}")
            if is_last:
                shutil.rmtree(home, ignore_errors=True)
        except (StorageError, OSError) as error:
            log.warning("what the loggers wrote for %s is not in storage: %s", directory, error)
