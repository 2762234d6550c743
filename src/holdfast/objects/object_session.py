"""Where shared objects are stored: a directory of the session, which is removed when the session's process exits.

A session belongs to the first process of a tree that puts something; processes that it starts use the same one. It is
found by that process's pid and start time, so nothing has to be passed on. A killed process leaves its directory; the
next process that opens a session removes it.
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
    """``name`` is that of the process that it belongs to."""

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
        """Create a file: in memory if at least as much memory stays free, otherwise in the temporary directory."""
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
        """Remove all of it. Mapped memory stays usable."""
        if self._owner == os.getpid():
            for root in _roots():
                shutil.rmtree(root / self.name, ignore_errors=True)


def session_here() -> ObjectSession:
    """The session of the process tree, or else a new one of this process."""
    return ancestral_session() or own_session()


def ancestral_session() -> ObjectSession | None:
    """The session of the nearest ancestor process that has one."""
    sessions = (ObjectSession(name, None) for name in _ancestors())
    return next((session for session in sessions if session.is_open), None)


def own_session() -> ObjectSession:
    """A new session, even if an ancestor has one."""
    sweep()
    session = ObjectSession(_name(os.getpid()), os.getpid())
    (_own_directory(_roots()[0]) / session.name).mkdir(mode=0o700, exist_ok=True)
    atexit.register(session.close)
    return session


def remove_session_of(pid: int) -> Callable[[], None]:
    """A callable that removes the session. The process that owns it may have exited by then."""
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
    """The places for sessions, the best first."""
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
    """The names of the processes above this one, the nearest first, as far as the system says."""
    pid = os.getppid()
    while pid > 0:
        yield _name(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0


def _name(pid: int) -> str:
    """A name that no other process of this machine has, had or will have."""
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
    """Containers may share memory without seeing each other's processes."""
    return "".join(filter(str.isdigit, namespace("pid"))) or "0"
