"""``python -m holdfast.drill.cut FILE COMMAND... FD``: runs an agent, and is a proxy between it and its driver.

The command starts an agent across a network, whose last argument is the descriptor from which it reads its driver's
address; it is given our address instead. When FILE appears, nothing is forwarded in either direction, and both ends
keep running. A FILE that exists from the start belonged to another agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_LOOK_EVERY_S = 0.05
_COMES_WITHIN_S = 60.0
_CHUNK = 1 << 16


def main(arguments: Sequence[str]) -> int:
    cut, command, told_fd = Path(arguments[0]), list(arguments[1:-1]), int(arguments[-1])
    is_old = cut.exists()
    with open(told_fd, "rb") as file:
        told = json.loads(file.read())
    with socket.create_server(("127.0.0.1", 0)) as door:
        reading, writing = os.pipe()
        with open(writing, "wb") as file:
            file.write(json.dumps({**told, "host": "127.0.0.1", "port": door.getsockname()[1]}).encode())
        agent = subprocess.Popen([*command, str(reading)], pass_fds=[reading])
        os.close(reading)
        door.settimeout(_COMES_WITHIN_S)
        with contextlib.suppress(OSError):
            ours, _ = door.accept()
            with ours, socket.create_connection((told["host"], told["port"])) as theirs:
                if pass_on(ours, theirs, lambda: not is_old and cut.exists()):
                    return agent.wait()  # cut off: it ends on its own, and its sockets stay open until then
        return agent.wait()


def pass_on(ours: socket.socket, theirs: socket.socket, is_cut: Callable[[], bool]) -> bool:
    """Until one side hangs up; True if it was cut."""
    with selectors.DefaultSelector() as selector:
        for way in ((ours, theirs), (theirs, ours)):
            selector.register(way[0], selectors.EVENT_READ, way)
        while True:
            events = selector.select(_LOOK_EVERY_S)
            if is_cut():
                return True
            for key, _ in events:
                source, sink = key.data
                data = source.recv(_CHUNK)
                if not data:
                    return False
                sink.sendall(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
