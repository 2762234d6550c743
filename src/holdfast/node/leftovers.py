"""Leftovers of an earlier driver of the run on this machine: its agents, with all processes below them.

An agent exits with its driver, but one that is stopped (SIGSTOP) at the wrong moment never sees that, and one whose
driver is stopped works for a driver that has lost the run. Each agent kills those of earlier epochs of its run, and
never a later one, because its own driver may be the one that has lost. Their command lines identify them: these exist
from the first moment, end with the process, and cannot be confused when a pid is reused. Linux only; on Ray, the raylet
ends agents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from holdfast.node.process_tree import ProcessTree
from holdfast.platform import processes

_PREFIX = b"of="
_MODULE = b"holdfast.node.agent_entry"
_GONE_WITHIN_S = 10.0


def mark(run: str, epoch: int) -> str:
    """An argument that says for which run an agent works, and in which epoch."""
    return f"{_PREFIX.decode()}{hashlib.sha256(os.fsencode(run)).hexdigest()[:16]}:{epoch}"


def end_leftovers(own: str) -> None:
    """End the agents on this machine that work for the same run as the one with this mark, and an earlier driver."""
    for pid in _earlier(own):
        tree = ProcessTree()
        try:
            tree.add(pid)  # from now on a reused pid is noticed
            if _is_earlier(pid, own):
                tree.kill()
                tree.wait(_GONE_WITHIN_S)
        finally:
            tree.close()


def _earlier(own: str) -> Iterator[int]:
    return (pid for pid in processes.pids() if _is_earlier(pid, own))


def _is_earlier(pid: int, own: str) -> bool:
    arguments = processes.arguments(pid)
    try:
        found = next((argument for argument in arguments if argument.startswith(_PREFIX)), b"")
        run, _, epoch = own.encode().partition(b":")
        return (
            _MODULE in arguments
            and found.partition(b":")[0] == run
            and int(found.partition(b":")[2]) < int(epoch)
            and processes.is_ours(pid)
            # A path means the same run and the same machine only within the same namespaces.
            and all(processes.namespace(kind, pid) == processes.namespace(kind) for kind in ("mnt", "net"))
        )
    except ValueError:
        return False
