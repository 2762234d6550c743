"""The limit of open files of a process: raises it, and stops before it is reached.

A worker costs its agent and its driver a few descriptors. The initial limit of a process is often far below the one
that the process may set itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

_ENOUGH = 1 << 16  # with more, programs that close every possible descriptor one by one take long
_AT_THE_LIMIT = (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS)


def raise_limit() -> None:
    """Raise the limit as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS enforces a lower limit even where this one is unlimited
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def limit_raised() -> Iterator[None]:
    """Raise the limit for a while, in a process that belongs to the user."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def check_room(newest: int) -> None:
    """Check that more files can be opened after the newest one. The system assigns the lowest free number, and running
    workers need some descriptors too."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and newest >= limit - max(16, min(128, limit // 8)):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def is_at_limit(error: BaseException | None) -> bool:
    """Whether the limit of open files caused the error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _AT_THE_LIMIT:
            return True
        error = error.__cause__
    return False


def remedy(error: BaseException) -> str:
    """What to do about the limit; empty if the error has another cause."""
    if not is_at_limit(error):
        return ""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"A process here may have {limit} files open: raise that limit (as with `ulimit -n 65536` before the script, "
        "or LimitNOFILE of a service), or run fewer workers or trials at a time"
    )
