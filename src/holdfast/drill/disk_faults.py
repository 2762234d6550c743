"""Faults of the disk that a run is stored on, and a driver that dies between two of its writes.

The store makes every change by a method of ``Disk``. In a process of a drill these methods are preceded by ours. The
agents' processes are left alone: they only read and sync what workers have written.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.drill.faults import Fault
from holdfast.drill.stage import Stage
from holdfast.errors import StorageFullError
from holdfast.store.checkpoints import CheckpointStore
from holdfast.store.disk import Disk
from holdfast.store.manifests import Manifest

_WRITES = ("makedirs", "write_new", "append", "overwrite", "copy_file")
_SLOW = (*_WRITES, "sync", "fsync_file", "fsync_dir", "rename")
_SLOWER_S = 0.1


def install(stage: Stage) -> None:
    """In the driver, and in workers for the files that they stage."""
    fault = stage.fault
    if fault is not None and fault.kind.where == "disk":
        for name in _SLOW if fault.name == "slow-disk" else _WRITES:
            _precede(name, lambda path: _disturb(stage, fault, path))
    if fault is not None and fault.name == "driver-kill" and fault.point != "report":
        _DyingDriver(stage, fault).install()


def _precede(name: str, what: Callable[[str], None]) -> None:
    original = getattr(Disk, name)

    def instead(disk: Disk, *args: Any, **kwargs: Any) -> Any:
        what(str(getattr(args[-1] if name == "copy_file" else args[0], "name", args[0])))
        return original(disk, *args, **kwargs)

    setattr(Disk, name, instead)


def _disturb(stage: Stage, fault: Fault, path: str) -> None:
    if not stage.is_on():
        return
    if fault.name == "slow-disk":
        time.sleep(_SLOWER_S)
    else:
        raise StorageFullError(f"Could not write {path}: no space is left there (holdfast drill: {fault})")


class _DyingDriver:
    """Kills the driver at a point of the commit of a checkpoint, that of the given step or the next one after it."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        self._stage, self._fault = stage, fault
        self._committing: Manifest | None = None
        self._is_committed = False

    def install(self) -> None:
        commit, rename, sync = CheckpointStore.commit, Disk.rename, Disk.sync

        def committing(store: CheckpointStore, manifest: Manifest, *args: Any, **kwargs: Any) -> Manifest:
            if manifest.report >= self._fault.step:
                self._committing = manifest
            done = commit(store, manifest, *args, **kwargs)
            self._is_committed = self._committing is not None
            return done

        def renaming(disk: Disk, source: Path | str, target: Path | str) -> None:
            manifest = self._committing
            is_manifest = manifest is not None and os.path.basename(target) == f"{manifest.id}.json"
            if manifest is not None and not self._is_committed:
                self._come_to("manifest" if is_manifest else "files", manifest)
            rename(disk, source, target)
            if manifest is not None and is_manifest:
                self._come_to("committed", manifest)

        def syncing(disk: Disk, file: Any) -> None:
            sync(disk, file)
            if self._committing is not None and self._is_committed and f"{os.sep}journal{os.sep}" in str(file.name):
                self._come_to("journalled", self._committing)

        for owner, name, instead in (
            (CheckpointStore, "commit", committing),
            (Disk, "rename", renaming),
            (Disk, "sync", syncing),
        ):
            setattr(owner, name, instead)

    def _come_to(self, point: str, manifest: Manifest) -> None:
        if point == self._fault.point and self._stage.strike(manifest.report, manifest.attempt_number):
            print(f"holdfast drill: {self._fault} strikes", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
