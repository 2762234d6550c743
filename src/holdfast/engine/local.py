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
from collections.abc import Callable, Iterator
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
_MOST_WAITING = 1000  # messages that the driver has not taken yet, above which its agent is not listened to


class LocalEngine:
    """One thread hears the agent, and starts the next one if it dies. The kernel ends an agent with the thread that
    started it, so that thread stays until the engine is closed."""

    def __init__(self) -> None:
        self._agent: _AgentProcess | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._replacing = threading.Lock()

    def check(self, gpus: float) -> None:
        there = len(glob.glob("/dev/nvidia[0-9]*"))
        if gpus > there:
            raise ValueError(
                f"the workers ask for {gpus:g} GPUs in all, and this machine has {there}: "
                "use ScalingConfig(use_gpu=False), or fewer workers"
            )

    def open(self, configure: wire.Configure, inbox: Inbox) -> None:
        self._configure, self._inbox = msgspec.structs.replace(configure, node_id=NODE), inbox
        self._agent = _AgentProcess(self._configure)
        self._thread = threading.Thread(target=self._hear, args=(self._agent,), name="holdfast-agent", daemon=True)
        self._thread.start()

    def _hear(self, agent: _AgentProcess | None) -> None:
        try:
            while agent is not None:
                for message in agent.messages():
                    self._pass_on(message)
                agent.await_end(lost=not self._closed)
                agent = self._replace()
        except Exception as error:
            self._inbox.put(error)  # else the driver would wait for ever

    def _pass_on(self, message: wire.Message) -> None:
        """A driver that is slow slows its workers down in the end; only what they print is not waited for."""
        while self._inbox.qsize() > _MOST_WAITING and not self._closed:
            if isinstance(message, wire.Output):
                return  # their logs have it
            time.sleep(0.01)
        self._inbox.put((NODE, message))

    def _replace(self) -> _AgentProcess | None:
        """The agent died under us: what it looked after is gone, and a new one takes its place."""
        with self._replacing:
            if self._closed:
                return None
            self._inbox.put((NODE, wire.NodeLost(NODE)))
            self._agent = _AgentProcess(self._configure)
            return self._agent

    def send(self, node_id: str, message: wire.Message) -> None:
        assert self._agent is not None
        assert node_id == NODE
        self._agent.send(message)

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return run()  # the driver handles signals itself

    def close(self) -> None:
        with self._replacing:
            self._closed = True
        if self._agent is not None:
            self._agent.close()
        if self._thread is not None:
            self._thread.join(2 * _GONE_WITHIN_S)


class _AgentProcess:
    """The agent and the pids below it."""

    def __init__(self, configure: wire.Configure) -> None:
        self._env = configure.env
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
        # The script's modules and nothing else: a queue.py in the working directory must not stand in for Python's own.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            command, pass_fds=fds, env=env, start_new_session=True, stdin=subprocess.DEVNULL
        )
        theirs.close()
        if grown is not None:
            grown[1].close()
        self._channel: Channel[Any] = Channel(ours, wire.TO_DRIVER)
        self.send(configure)

    def send(self, message: wire.Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            pass  # it is gone; the listening thread tells

    def messages(self) -> Iterator[wire.Message]:
        """What the agent says, until it is gone."""
        for message in self._channel.receive():
            if isinstance(message, wire.WorkerStarted):
                self._note(message.pid)
            yield message

    def await_end(self, lost: bool) -> None:
        """A group that is told to stop is gone before the next one starts, also when its agent was killed."""
        self._end_process()
        deadline = time.monotonic() + _GONE_WITHIN_S
        for pid, fd in self._below.items():
            if not _has_ended(fd, max(0.0, deadline - time.monotonic())):
                posix.kill_group(pid)
                _has_ended(fd, 1.0)
            os.close(fd)
            if lost:  # else the agent has done it
                remove_temporary_files(pid, self._env)
        self._below.clear()
        self._channel.close()

    def _end_process(self) -> None:
        try:
            self._process.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _note(self, pid: int) -> None:
        if hasattr(os, "pidfd_open"):
            for known, fd in list(self._below.items()):
                if posix.is_ending(known):
                    os.close(fd)
                    del self._below[known]
            with contextlib.suppress(ProcessLookupError):
                self._below[pid] = os.pidfd_open(pid)

    def close(self) -> None:
        self.send(wire.Shutdown())
        self._end_process()
        self._channel.close()


def _has_ended(pidfd: int, within_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
