"""Shared objects are stored in a directory of their session, which is removed when the session's process exits.

A session belongs to the first process of a tree that puts something. Processes that it starts use the same session.
They find it by that process's pid and start time, so nothing has to be passed to them. A killed process leaves its
directory behind; the next process that opens a session removes it.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.errors import StorageFullError
from holdfast.objects import packing
from holdfast.platform.processes import ENDED, are_listed, namespace, start_time, stat_fields, state
from holdfast.private_dirs import make_private

_MEMORY = "/dev/shm"
_NAME = re.compile(r"\d+-\d+-\d+")


class ObjectSession:
    """``name`` identifies the process that the session belongs to."""

    def __init__(self, name: str, owner: int | None) -> None:
        self.name = name
        self._owner = owner  # the pid of the process that removes it; None if another process does

    @property
    def is_open(self) -> bool:
        return any((root / self.name).is_dir() for root in _roots())

    @property
    def directory(self) -> Path:
        """The directory for small files."""
        return _roots()[0] / self.name

    def write(self, parts: Sequence[memoryview]) -> Path:
        """Create a file: in memory if at least its size stays free there, otherwise in the temporary directory."""
        size = sum(len(part) for part in parts)
        places = [root for root in _roots() if _free(root) >= 2 * size] or _roots()[-1:]
        path = _own_directory(places[0]) / self.name / secrets.token_hex(12)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            packing.write(fd, parts)
        except OSError as error:
            os.unlink(path)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFullError(
                    f"put(): no space for {size} bytes in {path.parent}. Free some space there."
                ) from error
            raise
        finally:
            os.close(fd)
        return path

    def find(self, name: str) -> Path | None:
        """The file of that name."""
        paths = [root / self.name / name for root in _roots()]
        return next((path for path in paths if name.isalnum() and path.exists()), None)

    def close(self) -> None:
        """Remove the session's files. Mapped memory stays usable."""
        if self._owner == os.getpid():
            for root in _roots():
                shutil.rmtree(root / self.name, ignore_errors=True)


def session_here() -> ObjectSession:
    """The session of the process tree. If there is none, a new one that belongs to this process."""
    return ancestral_session() or own_session()


def ancestral_session() -> ObjectSession | None:
    """The session of the nearest ancestor process that has one."""
    sessions = (ObjectSession(name, None) for name in _ancestors())
    return next((session for session in sessions if session.is_open), None)


def own_session() -> ObjectSession:
    """A new session of this process, even if an ancestor has one."""
    sweep()
    session = ObjectSession(_name(os.getpid()), os.getpid())
    (_own_directory(_roots()[0]) / session.name).mkdir(mode=0o700, exist_ok=True)
    atexit.register(session.close)
    return session


def remove_session_of(pid: int) -> Callable[[], None]:
    """A callable that removes the session of a process, also after that process has exited."""
    name = _name(pid)

    def remove() -> None:
        for root in _roots():
            shutil.rmtree(root / name, ignore_errors=True)

    return remove


def sweep() -> None:
    """Remove the directories of sessions whose process has exited."""
    ours = f"{_namespace()}-"
    for root in _roots():
        for entry in root.iterdir() if root.is_dir() else ():
            if _NAME.fullmatch(entry.name) and entry.name.startswith(ours) and not _lives(entry.name):
                shutil.rmtree(entry, ignore_errors=True)


def _roots() -> list[Path]:
    """The directories that may hold sessions, the best first."""
    places = [_MEMORY] if os.access(_MEMORY, os.W_OK | os.X_OK) else []
    return [Path(place, f"holdfast-objects-{os.geteuid()}") for place in (*places, tempfile.gettempdir())]


def _own_directory(root: Path) -> Path:
    return make_private(root, "put() stores objects there. Delete it.")


def _free(root: Path) -> int:
    with contextlib.suppress(OSError):
        found = os.statvfs(root.parent)
        return found.f_bavail * found.f_frsize
    return 0


def _ancestors() -> Iterator[str]:
    """The names of this process's ancestors, the nearest first, as far as the system reports them."""
    pid = os.getppid()
    while pid > 0:
        yield _name(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0


def _name(pid: int) -> str:
    """A name that no other process of this machine ever has."""
    return f"{_namespace()}-{pid}-{start_time(pid) or 0}"


def _lives(name: str) -> bool:
    pid = int(name.split("-")[1])
    if are_listed():
        return name == _name(pid) and state(pid) not in ENDED
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _namespace() -> str:
    """Part of the name, because containers may share memory without seeing each other's processes."""
    return "".join(filter(str.isdigit, namespace("pid"))) or "0"
