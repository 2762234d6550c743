"""Temporary files of a killed worker. The worker cannot remove them, so they carry its mark, and the agent removes
them.

The mark is the worker's pid and a random token, because containers that share a directory have workers with the same
pid. Files of a worker that returned are kept: its return value may be one of these paths. Only the default prefix of
``tempfile`` changes. The directory stays the same, because caches there outlive a worker.
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
    """In the worker: put the worker's mark on temporary files that it and its data loaders create."""
    find_directory()  # again, because the variables may differ from the zygote's
    tempfile.template = _prefix(pid, token)
    process: Any = multiprocessing.current_process()
    process._config = _Config(process._config, tempdir=None)


def find_directory() -> None:
    """Find the directory as ``tempfile`` would, but without its test file, which a killed process would leave there."""
    places = (os.environ.get("TMPDIR"), os.environ.get("TEMP"), os.environ.get("TMP"), "/tmp")
    fit = (place for place in places if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK))
    tempfile.tempdir = next(map(os.path.abspath, fit), None)


class _Config(dict[str, Any]):
    """The configuration of ``multiprocessing`` in the worker. Makes the temporary directory when it is needed."""

    def get(self, key: str, default: Any = None) -> Any:
        if key == "tempdir" and self[key] is None:
            self[key] = directory = tempfile.mkdtemp()
            multiprocessing.util.Finalize(None, shutil.rmtree, (directory,), {"ignore_errors": True}, exitpriority=-100)
        return super().get(key, default)

    def copy(self) -> dict[str, Any]:
        """For a child process, which has no mark and uses this process's directory."""
        self.get("tempdir")
        return dict(self)


def remove_temporary_files(pid: int, token: str, env: Mapping[bytes, bytes]) -> None:
    """In the agent: remove the temporary files of a worker that has exited."""
    for place in {os.fsdecode(env.get(b"TMPDIR", b"")) or tempfile.gettempdir(), "/dev/shm"}:
        for path in glob.glob(os.path.join(glob.escape(place), _prefix(pid, token) + "*")):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # already removed, or owned by another user
                    os.unlink(path)


def _prefix(pid: int, token: str) -> str:
    return f"holdfast-{pid}-{token}-"
