"""The directories of snapshots on the machine's memory file system: private, and removed after their agent has exited.

An agent holds a lock on its directory's lock file as long as it lives; a process that gets the lock has found a stale
directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import sys
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.private_dirs import make_private

_LOCK = "lock"
_ROOT = Path("/dev/shm")
_locks: dict[Path, int] = {}


def _home() -> Path:
    return _ROOT / f"holdfast-snapshots-{os.getuid()}"


def new_directory() -> Path | None:
    """One for a run on this node; None if there is no such memory."""
    if sys.platform != "linux" or not os.access(_ROOT, os.W_OK):
        return None
    try:
        home = make_private(_home(), "Remove it.")
        _sweep(home)
        directory = home / f"{os.getpid()}-{secrets.token_hex(6)}"
        directory.mkdir(mode=0o700)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, StorageError):
        return None
    _locks[directory] = lock
    return directory


def remove_directory(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    lock = _locks.pop(directory, None)
    if lock is not None:
        os.close(lock)
    with contextlib.suppress(OSError):  # other agents have their directories in it
        _home().rmdir()


def _sweep(home: Path) -> None:
    for directory in home.iterdir():
        try:
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # it is being created or removed right now
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # its agent lives
        finally:
            os.close(lock)
