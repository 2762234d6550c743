"""The embedded engine: this machine is the one node, and its agent is a child process of the script."""

from __future__ import annotations

import contextlib
import glob
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from holdfast.node import posix, seed
from holdfast.wire import messages as wire
from holdfast.wire.channel import Channel
from holdfast.worker.temporary import remove_temporary_files

from .base import Inbox

T = TypeVar("T")
NODE = "local-0"
_GONE_WITHIN_S = 10.0


class LocalEngine:
    def __init__(self) -> None:
        self._agent: _AgentProcess | None = None

    def check(self, gpus: float) -> None:
        there = len(glob.glob("/dev/nvidia[0-9]*"))
        if gpus > there:
            raise ValueError(
                f"the workers ask for {gpus:g} GPUs in all, and this machine has {there}: "
                "use ScalingConfig(use_gpu=False), or fewer workers"
            )

    def open(self, configure: wire.Configure, inbox: Inbox) -> None:
        self._configure, self._inbox = msgspec.structs.replace(configure, node_id=NODE), inbox
        self._agent = _AgentProcess(self._configure, inbox, self._restart)
        self._closed = False

    def _restart(self) -> None:
        """The agent died under us: what it looked after is gone, and a new one takes its place."""
        if not self._closed:
            self._inbox.put((NODE, wire.NodeLost(NODE)))
            self._agent = _AgentProcess(self._configure, self._inbox, self._restart)

    def send(self, node_id: str, message: wire.Message) -> None:
        assert self._agent is not None
        assert node_id == NODE
        self._agent.send(message)

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return run()  # the driver handles signals itself

    def close(self) -> None:
        self._closed = True
        if self._agent is not None:
            self._agent.close()


class _AgentProcess:
    """The agent, the thread that hears it, and the pids below it."""

    def __init__(self, configure: wire.Configure, inbox: Inbox, on_lost: Any) -> None:
        self._inbox, self._on_lost, self._env = inbox, on_lost, configure.env
        self._below: dict[int, int] = {}  # pid -> a file descriptor that tells of its end
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "holdfast.node.agent", str(theirs.fileno()), str(os.getpid())]
        fds = [theirs.fileno()]
        planted = seed.planted() if configure.start_method == "fork" else None
        grown = planted.grow() if planted is not None else None
        if grown is not None:
            zygote_pid, control = grown
            command.append(str(control.fileno()))
            fds.append(control.fileno())
            self._note(zygote_pid)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        # The agent's own start-up must not depend on what the script put into its environment for training.
        self._process = subprocess.Popen(
            command, pass_fds=fds, env=env, start_new_session=True, stdin=subprocess.DEVNULL
        )
        theirs.close()
        if grown is not None:
            grown[1].close()
        self._channel: Channel[Any] = Channel(ours, wire.TO_DRIVER)
        self.send(configure)
        self._thread = threading.Thread(target=self._hear, name="holdfast-agent", daemon=True)
        self._thread.start()

    def send(self, message: wire.Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            pass  # it is gone; the listening thread tells

    def _hear(self) -> None:
        for message in self._channel.receive():
            if isinstance(message, wire.WorkerStarted):
                self._note(message.pid)
            self._inbox.put((NODE, message))
        self._process.wait()
        self._await_end_below()
        self._channel.close()
        self._on_lost()

    def _note(self, pid: int) -> None:
        if hasattr(os, "pidfd_open"):
            for known, fd in list(self._below.items()):
                if posix.is_ending(known):
                    os.close(fd)
                    del self._below[known]
            with contextlib.suppress(ProcessLookupError):
                self._below[pid] = os.pidfd_open(pid)

    def _await_end_below(self) -> None:
        """A group that is told to stop is gone before the next one starts, also when its agent was killed."""
        deadline = time.monotonic() + _GONE_WITHIN_S
        for pid, fd in self._below.items():
            left = max(0.0, deadline - time.monotonic())
            if not select.select([fd], [], [], left)[0]:
                posix.kill_group(pid)
                select.select([fd], [], [], 1.0)
            os.close(fd)
            remove_temporary_files(pid, self._env)
        self._below.clear()

    def close(self) -> None:
        self.send(wire.Shutdown())
        try:
            self._process.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        self._thread.join(2 * _GONE_WITHIN_S)
