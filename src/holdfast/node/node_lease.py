"""How long the workers of an agent across a network may continue without its driver, and how others know that they have
ended. The driver considers the agent lost when it has not heard from it for the node's timeout. The driver after a dead
one relies on the same: by then the workers must have ended. The deadline is written where the zygotes can read it, so
that workers end even if their agent is stopped. Zygotes and workers also hold a name, the run's place on the machine.
The kernel frees it with the last of these processes, so the next agent of the run knows that none is left.
"""

from __future__ import annotations

import errno
import hashlib
import math
import mmap
import os
import socket
import struct
import time
from collections.abc import Sequence

from holdfast.platform import process_control, processes

_END = struct.Struct("d")


def now() -> float:
    """Seconds that continue while the machine is suspended, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class NodeLease:
    """With the ``fds`` of another process's lease, this is the same lease."""

    def __init__(self, fds: Sequence[int] = ()) -> None:
        memory, place = fds or (process_control.anonymous_file(bytes(_END.size)), -1)
        if place < 0 and process_control.LINUX:
            place = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()
        self.fds = (memory, place)
        self._memory = mmap.mmap(memory, _END.size)
        if not fds:
            self.end = math.inf

    @property
    def end(self) -> float:
        """Whether it has expired by ``now``."""
        return float(_END.unpack_from(self._memory)[0])

    @end.setter
    def end(self, when: float) -> None:
        _END.pack_into(self._memory, 0, when)

    @property
    def is_over(self) -> bool:
        return now() > self.end

    @property
    def left_s(self) -> float:
        return max(0.0, self.end - now())

    def move_in(self, run: str, node: str) -> bool | None:
        """Take the run's place on this node; False if another process holds it, None if that is unknown. The name
        belongs to this network namespace, and leaves no file behind."""
        if not process_control.LINUX:
            return None
        name = hashlib.sha256(f"{os.getuid()} {node} {run}".encode()).hexdigest()
        place = socket.socket(fileno=os.dup(self.fds[1]))
        try:
            place.bind(f"\0holdfast-{name}")
        except OSError as error:
            return False if error.errno == errno.EADDRINUSE else None
        finally:
            place.close()
        return True

    def leave_to_zygote(self) -> None:
        """The processes that can train hold the place, and the agent does not: it may be stopped when they have already
        exited."""
        memory, place = self.fds
        if place >= 0:
            os.close(place)
        self.fds = (memory, -1)


def machine() -> str:
    """The scope of a place: this network namespace, since the machine was booted."""
    boot, network = processes.boot_id(), "".join(filter(str.isdigit, processes.namespace("net")))
    return f"{boot}.{network}" if boot and network else socket.gethostname()
