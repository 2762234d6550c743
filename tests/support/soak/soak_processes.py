"""The processes of a run of the soak, found by a mark in their environment, whoever their parent is now."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MARK = "SOAK_MARK"


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def lives(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def marked(mark: str) -> set[int]:
    """The living ones."""
    wanted, found = f"{MARK}={mark}".encode(), set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and lives(pid):
                found.add(pid)
    return found


def below(pid: int) -> list[int]:
    found, todo = [], [pid]
    while todo:
        for path in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(child) for child in path.read_text().split()]
                found += children
                todo += children
    return sorted(found)


def reap(pids: set[int]) -> None:
    """Those that became children of ours when their parent was killed."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
