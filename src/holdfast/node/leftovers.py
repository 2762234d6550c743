"""What an earlier driver of the run left on this machine: its agents, with all that is below them.

An agent ends with its driver, but one that is stopped (SIGSTOP) at the wrong moment never hears of that, and one whose
driver is stopped works for a driver that has lost the run. The driver that starts an agent has the run's lease, so the
new agent ends the old ones. Their command lines say whose they are: that is known from their first moment on, ends with
the process, and cannot be taken for another's when a pid is used again. Linux only; on Ray, the raylet ends agents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from .tree import Tree

_PREFIX = b"of="
_MODULE = b"holdfast.node.main"
_GONE_WITHIN_S = 10.0


def mark(run_dir: str, driver: str) -> str:
    """An argument that says for which run and driver an agent works."""
    return f"{_PREFIX.decode()}{hashlib.sha256(os.fsencode(run_dir)).hexdigest()[:16]}:{driver}"


def end_leftovers(own: str) -> list[int]:
    """End the agents of this run on this machine that work for another driver than the one with this mark; which."""
    ended = []
    for pid in _others(own):
        tree = Tree()
        try:
            tree.add(pid)  # from now on it is known if the number becomes another's
            if _is_of_another_driver(pid, own):
                tree.kill()
                tree.wait(_GONE_WITHIN_S)
                ended.append(pid)
        finally:
            tree.close()
    return ended


def _others(own: str) -> Iterator[int]:
    names = os.listdir("/proc") if os.path.isdir("/proc/self") else []
    return (int(name) for name in names if name.isdigit() and _is_of_another_driver(int(name), own))


def _is_of_another_driver(pid: int, own: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().split(b"\0")
        found = next((argument for argument in arguments if argument.startswith(_PREFIX)), b"")
        run, _, driver = own.encode().partition(b":")
        return (
            _MODULE in arguments
            and found.partition(b":")[0] == run
            and found.partition(b":")[2] != driver
            and os.stat(f"/proc/{pid}").st_uid == os.getuid()
            and all(_namespace(str(pid), kind) == _namespace("self", kind) for kind in ("mnt", "net"))
        )
    except OSError:  # it has ended, or is not ours
        return False


def _namespace(pid: str, kind: str) -> int:
    """The same path is the same run, and the same machine, in the same namespaces alone."""
    return os.stat(f"/proc/{pid}/ns/{kind}").st_ino
