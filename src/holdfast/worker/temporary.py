"""Temporary files of a killed worker: it cannot remove them, so they carry its mark, and the agent removes them.

The mark is the worker's pid and a random token: containers that share a directory have workers with the same pid. Files
of a worker that returned belong to its user: the path may be its return value. Only the default prefix of ``tempfile``
changes. The directory does not: caches there outlive a worker.
"""

from __future__ import annotations

import contextlib
import glob
import multiprocessing
import multiprocessing.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any


def new_token() -> str:
    return secrets.token_hex(6)


def mark_temporary_files(pid: int, token: str) -> None:
    """In the worker: let temporary files of it and its data loaders carry the worker's mark."""
    find_directory()  # again, as the variables may be others than the zygote's
    tempfile.template = _prefix(pid, token)
    process: Any = multiprocessing.current_process()
    process._config = _Config(process._config, tempdir=None)


def find_directory() -> None:
    """As ``tempfile`` would, which tries a directory with a file that bears no mark: one killed then would leave it."""
    places = (os.environ.get("TMPDIR"), os.environ.get("TEMP"), os.environ.get("TMP"), "/tmp")
    fit = (place for place in places if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK))
    tempfile.tempdir = next(map(os.path.abspath, fit), None)


class _Config(dict[str, Any]):
    """What ``multiprocessing`` is told of the worker. Makes the temporary directory when it is needed."""

    def get(self, key: str, default: Any = None) -> Any:
        if key == "tempdir" and self[key] is None:
            self[key] = directory = tempfile.mkdtemp()
            multiprocessing.util.Finalize(None, shutil.rmtree, (directory,), {"ignore_errors": True}, exitpriority=-100)
        return super().get(key, default)

    def copy(self) -> dict[str, Any]:
        """For a child, which has no mark."""
        self.get("tempdir")
        return dict(self)


def remove_temporary_files(pid: int, token: str, env: Mapping[bytes, bytes]) -> None:
    """In the agent, when the worker has exited."""
    for place in {os.fsdecode(env.get(b"TMPDIR", b"")) or tempfile.gettempdir(), "/dev/shm"}:
        for path in glob.glob(os.path.join(glob.escape(place), _prefix(pid, token) + "*")):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # already removed, or of another user
                    os.unlink(path)


def _prefix(pid: int, token: str) -> str:
    return f"holdfast-{pid}-{token}-"
