"""Whether the kernel killed a process for memory, according to the counters of the control groups that it was in.

Both versions of control groups are read, wherever they are mounted. The root group counts nothing, so for a process in
it the machine's counter decides.
"""

from __future__ import annotations

from pathlib import Path

_MOST_KNOWN = 64
_FILES = {"cgroup2": "memory.events", "cgroup": "memory.oom_control"}


class OomWatch:
    """The values of the counters when each process was first seen in its groups."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before: dict[int, dict[Path, int]] = {}
        self._groups: dict[int, str] = {}  # at the last look
        self._known: dict[str, list[Path]] = {}  # the counters of groups: most processes are in the same ones

    def look(self, pid: int) -> None:
        """Call this from time to time while the process lives: it may be moved to another group."""
        try:
            groups = (self._proc / str(pid) / "cgroup").read_text()
        except OSError:
            return
        if self._groups.get(pid) == groups:
            return
        self._groups[pid] = groups
        before = self._before.setdefault(pid, {})
        for path in self._counters(groups):
            before.setdefault(path, _oom_kills(path) or 0)

    def take_verdict(self, pid: int) -> bool:
        """Whether a counter of one of its groups has increased since the first look. Forgets the process."""
        before = self._before.get(pid, {})
        self.forget(pid)
        return any((_oom_kills(path) or 0) > count for path, count in before.items())

    def forget(self, pid: int) -> None:
        self._before.pop(pid, None)
        self._groups.pop(pid, None)

    def _counters(self, groups: str) -> list[Path]:
        if groups not in self._known:
            try:
                mounts = (self._proc / "self" / "mountinfo").read_text().splitlines()
            except OSError:
                return []
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            files = [counter for group in groups.splitlines() for counter in _counter_files(group, mounts)]
            self._known[groups] = files
        found = [path for path in self._known[groups] if _oom_kills(path) is not None]
        return found or [self._proc / "vmstat"]


def _counter_files(group: str, mounts: list[str]) -> list[Path]:
    """``group`` is a line of /proc/PID/cgroup: hierarchy, controllers, path. ``mounts`` has the lines of mountinfo."""
    number, _, rest = group.partition(":")
    controllers, _, path = rest.partition(":")
    kind = "cgroup2" if number == "0" and not controllers else "cgroup"
    if kind == "cgroup" and "memory" not in controllers.split(","):
        return []
    found = []
    for mount in mounts:
        fields, _, more = mount.partition(" - ")
        root, at = fields.split()[3:5]
        file_system, _, options = more.split(maxsplit=2)
        is_it = file_system == kind and (kind == "cgroup2" or "memory" in options.split(","))
        inside = path if root == "/" else path.removeprefix(root)
        if is_it and (root == "/" or inside != path):
            found.append(Path(at) / inside.lstrip("/") / _FILES[kind])
    return found


def _oom_kills(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    except (OSError, ValueError):
        pass
    return None
