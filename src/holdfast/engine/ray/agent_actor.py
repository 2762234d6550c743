"""The Ray actor, one per node and run. It starts the agent, outlives it, and reports when all processes below it have
exited. It detects by itself when Ray has lost its node: the raylet is its parent, and an actor may keep running without
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass

import holdfast
from holdfast.node.process_tree import ProcessTree

_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_LOOK_EVERY_S = 0.1
_ENDS_ITSELF_WITHIN_S = 5.0
_GONE_WITHIN_S = 10.0
_ANSWER_WITHIN_S = 1.0  # that the node is lost; then this process ends too


@dataclass(frozen=True)
class About:
    """What the driver needs to know about a node before it starts an agent there."""

    version: str
    python: tuple[int, int]
    pid: int
    address: str
    interface: str  # of its network; empty if unknown
    env: dict[str, str]
    sys_path: list[str]
    cwd: str
    reaches_storage: bool


class HoldfastAgent:
    """Its name is what Ray's dashboard and logs show."""

    def __init__(self, run: str, node: str) -> None:
        self._run, self._node = run, node
        self._raylet = os.getppid()

    def __repr__(self) -> str:
        return f"HoldfastAgent(run={self._run}, node={self._node})"

    def about(self, run_dir: str) -> About:
        """``run_dir``: where the run is stored, if that is a directory which all nodes must reach; else empty."""
        from ray.util import get_node_ip_address

        address = get_node_ip_address()
        return About(
            version=holdfast.__version__,
            python=sys.version_info[:2],
            pid=os.getpid(),
            address=address,
            interface=interface_of(address),
            env=dict(os.environ),
            sys_path=list(sys.path),
            cwd=os.getcwd(),
            reaches_storage=not run_dir or os.path.isdir(run_dir),
        )

    def host(self, host: str, port: int, token: str) -> bool:
        """Run one agent until it and all processes below it have exited; returns whether Ray still has the node."""
        from holdfast.engine.ray.actor_server import ActorServer

        tree, door = ProcessTree(), ActorServer()
        process = self._start({"host": host, "port": port, "token": token})
        tree.add(process.pid)
        try:
            self._until_it_ends(process, tree)
        finally:
            self._end(process, tree)
            door.close()
        if self._has_raylet:
            return True
        end = threading.Timer(_ANSWER_WITHIN_S, os._exit, [1])  # Ray itself would leave this process behind
        end.daemon = True
        end.start()
        return False

    def _end(self, process: subprocess.Popen[bytes], tree: ProcessTree) -> None:
        """Let it exit on its own if possible: a tree is stopped before it is killed, and Ray may end this process at
        any moment."""
        process.send_signal(signal.SIGHUP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_ITSELF_WITHIN_S)
        if tree.wait(_ENDS_ITSELF_WITHIN_S):
            tree.kill()
        process.kill()
        process.wait()
        tree.wait(_GONE_WITHIN_S)
        tree.close()

    @property
    def _has_raylet(self) -> bool:
        return os.getppid() == self._raylet

    def _until_it_ends(self, process: subprocess.Popen[bytes], tree: ProcessTree) -> None:
        while self._has_raylet:
            tree.add_children(process.pid)
            try:
                process.wait(_LOOK_EVERY_S)
                return
            except subprocess.TimeoutExpired:
                pass

    def _start(self, told: dict[str, str | int]) -> subprocess.Popen[bytes]:
        """The token goes through a pipe: arguments and variables can be read by others."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONSAFEPATH": "1"}
        reading, writing = os.pipe()
        with open(writing, "wb") as file:
            file.write(json.dumps(told).encode())
        command = [sys.executable, "-m", "holdfast.engine.ray.agent_main", str(os.getpid()), str(reading)]
        try:
            return subprocess.Popen(
                command, pass_fds=[reading], env=env, start_new_session=True, stdin=subprocess.DEVNULL
            )
        finally:
            os.close(reading)


def interface_of(address: str) -> str:
    """The interface that has this IPv4 address; empty if none is found."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""
