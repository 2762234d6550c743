"""Directories that only this user can enter: files in them are loaded, uploaded or executed in the user's name.

Their names are predictable, and another user of the machine may create one first. An existing directory is therefore
used only if it belongs to this user and others could never write to it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from holdfast.errors import StorageError


def is_private(path: Path) -> bool:
    """Whether it is a directory of this user that no other user can enter; a link to one is not."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return _problem(status) == "" and not status.st_mode & 0o077


def make_private(path: Path, remedy: str) -> Path:
    """Create it, with the directories above it, or use the existing one; StorageError, which ends with the remedy, if
    another user has or had access to it. One of this user's that others can only read is closed to them."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = os.lstat(path)
        problem = _problem(status)
        if not problem and status.st_mode & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise StorageError(f"{path} cannot be used for private files: {problem}. {remedy}")
    return path


def _problem(status: os.stat_result) -> str:
    """Why its content cannot be trusted; empty if it can."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid != os.geteuid():
        return f"it belongs to another user (uid {status.st_uid})"
    return "other users can write to it" if status.st_mode & 0o022 else ""
