"""No worker process at all: the train function runs in the script's own main thread, for debugging and notebooks.

The driver's loop and the agent run in threads of the same process; everything else is as with workers.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import cloudpickle
import msgspec

from holdfast.node.agent import Agent
from holdfast.node.launch import SpawnLauncher
from holdfast.wire import messages as wire
from holdfast.wire.channel import Channel
from holdfast.worker.main import perform

from .base import Inbox

T = TypeVar("T")
NODE = "in-process"
_NO_PID = 0  # there is no process that anybody could end


class InProcessEngine:
    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def check(self, gpus: float) -> None:
        """The script's own process has what it has."""

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        outcome: Future[T] = Future()

        def drive() -> None:
            try:
                outcome.set_result(run())
            except BaseException as error:
                outcome.set_exception(error)
            finally:
                self._work.put(None)

        driver = threading.Thread(target=drive, name="holdfast-driver")
        driver.start()
        while True:
            try:
                job = self._work.get()
                if job is None:
                    break
                job()
            except KeyboardInterrupt:
                ask_to_stop(signal.SIGINT, False)
        driver.join()
        return outcome.result()

    def open(self, configure: wire.Configure, inbox: Inbox) -> None:
        ours, theirs = socket.socketpair()
        agent = Agent(theirs, _MainThreadLauncher(self._work.put))
        self._agent = threading.Thread(target=agent.run, name="holdfast-node")
        self._agent.start()
        self._channel: Channel[Any] = Channel(ours, wire.TO_DRIVER)
        self._ears = threading.Thread(target=self._hear, args=(inbox,), name="holdfast-agent")
        self._ears.start()
        self.send(NODE, msgspec.structs.replace(configure, node_id=NODE))

    def _hear(self, inbox: Inbox) -> None:
        for message in self._channel.receive():
            inbox.put((NODE, message))

    def send(self, _node_id: str, message: wire.Message) -> None:
        self._channel.send(message)

    def close(self) -> None:
        self.send(NODE, wire.Shutdown())
        self._agent.join()
        self._channel.close()
        self._ears.join()


class _MainThreadLauncher(SpawnLauncher):
    """Hands a worker to the main thread; a task beside it gets a process of its own."""

    def __init__(self, hand_over: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._hand_over = hand_over

    def launch(self, token: int, channel: int, output: int, payload: int, task: bool = False) -> None:
        if task:
            super().launch(token, channel, output, payload, task)
            return
        sock = socket.socket(fileno=os.dup(channel))
        body = os.pread(payload, os.fstat(payload).st_size, 0)
        self.say(wire.Forked(token, _NO_PID))
        self._hand_over(lambda: self._perform(sock, body))

    def _perform(self, sock: socket.socket, body: bytes) -> None:
        channel: Channel[Any] = Channel(sock, wire.TO_WORKER)
        code = 1
        try:
            assignment = next(channel.receive())
            assert isinstance(assignment, wire.Assignment)
            code = perform(assignment, channel, lambda: cloudpickle.loads(body), lambda: None)
        finally:
            channel.close()
            self.say(wire.Exited(_NO_PID, code << 8))
