"""Temporary files of a worker that is killed: it cannot remove them, so they bear its mark, and the agent does.

The mark is the worker's pid and a random token: containers that share a directory have workers with the same pid.
What a worker leaves that returned is its user's: the path may be what it returned.
Only the default prefix of ``tempfile`` changes. Where temporary files lie does not: caches there outlive a worker.
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
    """In the worker: let what it and its data loaders make be found by the worker's mark."""
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
    """Of the worker as a process of ``multiprocessing``, with a directory for all that it makes, once it is wanted."""

    def get(self, key: str, default: Any = None) -> Any:
        if key == "tempdir" and self[key] is None:
            self[key] = directory = tempfile.mkdtemp()
            multiprocessing.util.Finalize(None, shutil.rmtree, (directory,), {"ignore_errors": True}, exitpriority=-100)
        return super().get(key, default)

    def copy(self) -> dict[str, Any]:
        """For a child, which has no mark of its own."""
        self.get("tempdir")
        return dict(self)


def remove_temporary_files(pid: int, token: str, env: Mapping[bytes, bytes]) -> None:
    """In the agent, when the worker is gone."""
    for place in {os.fsdecode(env.get(b"TMPDIR", b"")) or tempfile.gettempdir(), "/dev/shm"}:
        for path in glob.glob(os.path.join(glob.escape(place), _prefix(pid, token) + "*")):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # it is gone, or another's
                    os.unlink(path)


def _prefix(pid: int, token: str) -> str:
    return f"holdfast-{pid}-{token}-"
