"""No worker process at all: the train function runs in the script's own main thread, for debugging and notebooks.

The driver's loop and the agent run in threads of the same process; everything else is as with workers.
"""

from __future__ import annotations

import contextlib
import math
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

from holdfast.engine.engine_interface import Inbox
from holdfast.errors import HoldfastError
from holdfast.node.agent import Agent
from holdfast.node.launch import Fds, SpawnLauncher
from holdfast.platform import interrupt
from holdfast.wire import messages as wire
from holdfast.wire.channel import Channel
from holdfast.wire.worker_messages import TO_WORKER, Assignment
from holdfast.wire.zygote_messages import Exited, Forked
from holdfast.worker.training_process import perform

T = TypeVar("T")
NODE = "in-process"
_NO_PID = 0  # there is no separate process to kill
_one_at_a_time = threading.RLock()  # there is one session in a process: runs in several threads take turns


class InProcessEngine:
    grows = False
    is_this_machine = True

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_performing = self._was_asked = False

    def check(self, gpus: float) -> None:
        """The script's own process has the resources of the machine."""

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        outcome: Future[T] = Future()

        def drive() -> None:
            try:
                outcome.set_result(run())
            except BaseException as error:
                outcome.set_exception(error)
            finally:
                self._work.put(None)

        def heed(number: int, at_once: bool) -> None:
            """Request the stop before the train function is interrupted, so that its end does not count as a
            failure."""
            self._was_asked = True
            ask_to_stop(number, at_once)
            if self._is_performing:
                raise KeyboardInterrupt

        driver = threading.Thread(target=drive, name="holdfast-driver")
        with _one_at_a_time, interrupt.handled(heed, in_process=True):
            driver.start()
            while True:
                try:
                    job = self._work.get()
                    if job is None:
                        break
                    self._is_performing = True
                    job()
                except KeyboardInterrupt:
                    if not self._was_asked:  # it is of a handler that the user installed
                        ask_to_stop(signal.SIGINT, False)
                finally:
                    self._is_performing = False
            driver.join()
        return outcome.result()

    def open(self, configure: wire.Configure, inbox: Inbox) -> _Session:
        return _Session(configure, inbox, self._work.put)


class _Session:
    def __init__(
        self, configure: wire.Configure, inbox: Inbox, hand_over: Callable[[Callable[[], None]], None]
    ) -> None:
        ours, theirs = socket.socketpair()
        agent = Agent(theirs, _MainThreadLauncher(hand_over))
        self._closed = False
        self._agent = threading.Thread(target=agent.run, name="holdfast-node")
        self._agent.start()
        self._channel: Channel[Any] = Channel(ours, wire.TO_DRIVER)
        self._ears = threading.Thread(target=self._hear, args=(inbox,), name="holdfast-agent")
        self._ears.start()
        self._channel.send(msgspec.structs.replace(configure, node_id=NODE))

    def _hear(self, inbox: Inbox) -> None:
        inbox.put((NODE, wire.NodeJoining(NODE)))
        for message in self._channel.receive():
            if isinstance(message, wire.NodeReady):
                message = msgspec.structs.replace(message, cpus=math.inf)
            inbox.put((NODE, message))
        if not self._closed:
            inbox.put(HoldfastError("the agent's thread ended. Its output says why"))

    def accept(self, node_id: str, pid: int) -> None:
        """There is never another agent."""

    def send(self, node_id: str, message: wire.Message) -> None:
        self._channel.send(message)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):  # the agent has already exited
            self._channel.send(wire.Shutdown())
        self._agent.join()
        self._channel.close()
        self._ears.join()


class _MainThreadLauncher(SpawnLauncher):
    """Runs the worker in the main thread; a task beside it gets a separate process."""

    def __init__(self, hand_over: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._hand_over = hand_over

    def launch(self, token: int, fds: Fds, task: bool = False) -> None:
        if task:
            super().launch(token, fds, task)
            return
        channel, _, payload, _ = fds
        sock = socket.socket(fileno=os.dup(channel))
        body = os.pread(payload, os.fstat(payload).st_size, 0)
        self.say(Forked(token, _NO_PID))
        self._hand_over(lambda: self._perform(sock, body))

    def _perform(self, sock: socket.socket, body: bytes) -> None:
        channel: Channel[Any] = Channel(sock, TO_WORKER)
        code = 1
        try:
            assignment = next(channel.receive())
            assert isinstance(assignment, Assignment)
            code = perform(assignment, channel, lambda: cloudpickle.loads(body), lambda: None)
        finally:
            channel.close()
            self.say(Exited(_NO_PID, code << 8))
