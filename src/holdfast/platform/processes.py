"""What the system reports about processes, and what identifies them: the machine's boot and the namespace."""

from __future__ import annotations

import os
import resource
from pathlib import Path

ENDED = ("", "Z", "X")  # states of processes that have exited, including those not yet reaped
_START = 19  # the position of the start time after the name


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: the state, the parent, ...; empty if there is no such process, or
    the system has no such file."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def state(pid: int) -> str:
    """R, S, D, T, ... as ps shows it; empty if the process has exited."""
    fields = stat_fields(pid)
    return fields[0] if fields else ""


def start_time(pid: int) -> str:
    """When a process was started, in the system's ticks. It distinguishes two processes with the same number. Empty if
    unknown."""
    fields = stat_fields(pid)
    return fields[_START] if fields else ""


def boot_id() -> str:
    """The id of this boot of the machine; empty if unknown."""
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


def are_listed() -> bool:
    """Whether the system reports on other processes. If not, only a signal shows whether a process lives."""
    return os.path.isdir("/proc/self")


def pids() -> list[int]:
    """All processes that can be seen from here."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if are_listed() else []


def children(pid: int) -> list[int]:
    """The child processes of all threads of the process."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return found


def name(pid: int) -> str:
    """The name as ps shows it, 15 characters; empty if the process has exited."""
    return _read(pid, "comm").decode(errors="replace").strip()


def arguments(pid: int) -> list[bytes]:
    return _read(pid, "cmdline").split(b"\0")


def environment(pid: int) -> list[bytes]:
    """``NAME=value`` as the process was started with; empty for a process of another user."""
    return _read(pid, "environ").split(b"\0")


def is_ours(pid: int) -> bool:
    """Whether the process belongs to the same user."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    lines = _read(pid, "status").decode().splitlines()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) & (1 << (number - 1)))


def kernel_function(pid: int) -> str:
    """The kernel function in which the process waits; empty if unknown."""
    return _read(pid, "wchan").decode().strip("0\n")


def thread_names() -> list[str]:
    """The names of the threads of this process, including those of libraries."""
    return [_read("self", f"task/{thread}/comm").decode().strip() for thread in os.listdir("/proc/self/task")]


def mapped_files() -> set[str]:
    """The files that this process has mapped, libraries among them."""
    lines = (line.split(maxsplit=5) for line in _read("self", "maps").decode().splitlines())
    return {fields[5] for fields in lines if len(fields) > 5}


def memory_used(resident: bool) -> int:
    """Bytes of this process, in memory or of its address space. OSError where the system does not report it."""
    return int(Path("/proc/self/statm").read_text().split()[int(resident)]) * resource.getpagesize()


def _read(pid: int | str, file: str) -> bytes:
    """Empty if the process has exited, may not be inspected, or the system has no such file."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""
