"""A run that is stored in a directory."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.errors import RunInUseError, StorageError
from holdfast.store import formats, journal, lease, runfile
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import Disk
from holdfast.store.interfaces import LivingDriver, RunStore
from holdfast.store.journal import Record
from holdfast.store.layout import RunLayout
from holdfast.store.lease import Lease
from holdfast.store.location import Location
from holdfast.store.metrics import read_reports
from holdfast.store.regular import open_regular
from holdfast.store.sealed import Damage

_BLOCK = 1 << 16


class DiskRun(RunStore):
    def __init__(self, layout: RunLayout, disk: Disk | None = None) -> None:
        self.location = Location("", str(layout.root))
        self.checkpoints: CheckpointStore = CheckpointStore(layout, disk)
        self._layout, self._disk = layout, disk or Disk()

    def is_there(self) -> bool:
        return self._layout.root.exists()

    def is_run(self) -> bool:
        if not self._layout.root.is_dir():
            return False
        try:
            # A driver that starts a new run creates the empty journal first.
            return self._layout.run_file.exists() or any(path.stat().st_size for _, path in self._layout.segments())
        except FileNotFoundError:
            return False  # it is being deleted
        except PermissionError:
            return True  # it may be a run; then reading it reports the problem

    def check_format(self) -> None:
        formats.check_run(self._layout)

    def read_identity(self) -> dict[str, Any]:
        return runfile.read(self._layout)

    def write_identity(self, identity: dict[str, Any]) -> None:
        runfile.write(self._layout, self._disk, identity)

    def read_journal(self) -> tuple[list[Record], list[Damage]]:
        return journal.read(self._layout)

    def journal_stamp(self) -> int:
        return self.total_size("journal")

    def journal_files(self) -> str:
        count = len(self._layout.segments())
        return f"{count:,} file{'' if count == 1 else 's'}"

    def living_driver(self) -> LivingDriver | None:
        return lease.living_driver(self._layout)

    def acquire(self, on_lost: Callable[[RunInUseError], None] = lambda _: None) -> Lease:
        self.check_format()
        try:
            return Lease.acquire(self._layout)
        except OSError as error:
            root = self._layout.root
            raise StorageError(f"{root} cannot be written: {error}. Choose another storage_path.") from error

    @contextlib.contextmanager
    def keep_drivers_out(self) -> Iterator[None]:
        lease = self.acquire()
        try:
            yield
        finally:
            lease.release()

    def directories(self, directory: str = "") -> list[str]:
        try:
            with os.scandir(self._layout.root / directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self, directory: str) -> list[str]:
        paths = (self._layout.root / directory).rglob("*")
        return sorted(self._layout.relative(path) for path in paths if not path.is_dir())

    def read(self, file: str, start: int = 0) -> Iterator[bytes]:
        path = self._layout.root / file
        try:
            opened = open_regular(path)
        except FileNotFoundError:
            return
        except PermissionError:
            raise
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from error
        with opened:
            opened.seek(start)
            while block := opened.read(_BLOCK):
                yield block

    def size(self, file: str) -> int:
        try:
            return (self._layout.root / file).stat().st_size
        except OSError:
            return 0

    def total_size(self, directory: str) -> int:
        try:
            with os.scandir(self._layout.root / directory) as entries:
                return sum(entry.stat().st_size for entry in entries if entry.is_file())
        except OSError:
            return 0

    def read_backwards(self, file: str) -> Iterator[bytes]:
        try:
            opened = open_regular(self._layout.root / file)
        except PermissionError:
            raise
        except OSError:
            return  # ``verify`` reports it
        with opened:
            position = opened.seek(0, io.SEEK_END)
            while position:
                size = min(_BLOCK, position)
                position = opened.seek(position - size)
                yield opened.read(size) or b""

    def reports(self, file: str) -> tuple[list[dict[str, Any]], list[Damage]]:
        return read_reports(self._layout.root / file, file)
