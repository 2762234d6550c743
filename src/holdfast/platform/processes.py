"""What the system says of processes, and what makes them the same: since when the machine runs, in which namespace."""

from __future__ import annotations

import os
from pathlib import Path

ENDED = ("", "Z", "X")  # states of what is gone, or only waits to be reaped
_START = 19  # where the start time is, behind the name


def stat_fields(pid: int) -> list[str]:
    """What /proc/PID/stat has behind the name: the state, the parent, ...; nothing if there is no such process, or the
    system has no such file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def state(pid: int) -> str:
    """R, S, D, T, ... as ps shows it; empty if the process is gone."""
    fields = stat_fields(pid)
    return fields[0] if fields else ""


def start_time(pid: int) -> str:
    """Of a process, in the system's ticks: with it a number that is used again is another process. Empty if that is
    not known."""
    fields = stat_fields(pid)
    return fields[_START] if fields else ""


def boot_id() -> str:
    """Of this machine since it was started; empty if that is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace(kind: str, pid: int | str = "self") -> str:
    """ "pid", "net" or "mnt": containers of one machine differ in them. Empty if that is not known."""
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""
