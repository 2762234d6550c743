"""An agent that is a process of this machine: how it is started, and how it and all processes below it are ended."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.engine.agent_link import FENCE_MARGIN_S, Link, LinkedAgent
from holdfast.engine.engine_interface import Inbox
from holdfast.node import leftovers, seed
from holdfast.node.handshake import AgentListener
from holdfast.node.process_tree import ProcessTree
from holdfast.platform import processes
from holdfast.wire import messages as wire
from holdfast.worker.temporary import remove_temporary_files

_GONE_WITHIN_S = 10.0  # how long an agent may take to end the processes below it and exit
_CONNECT_WITHIN_S = 30.0


@dataclass(frozen=True)
class Network:
    """A node that is reached over a network, such as a network namespace of this machine.

    ``command`` runs what follows it on the node, as ``("ip", "netns", "exec", "n1")`` does. The agent there connects
    to ``driver_address``; other nodes reach this one at ``node_address``.
    """

    command: tuple[str, ...]
    driver_address: str
    node_address: str


@dataclass(frozen=True)
class LocalNode:
    """The resources of a node for each run that uses it."""

    id: str
    cpus: float = math.inf
    gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    network: Network | None = None

    @property
    def address(self) -> str:
        return self.network.node_address if self.network else "127.0.0.1"


class AgentProcess(LinkedAgent):
    """The agent and the processes below it. Without a network in between, the kernel kills it with the thread that
    started it."""

    def __init__(self, node: LocalNode, configure: wire.Configure) -> None:
        self._node = node
        self._configure = msgspec.structs.replace(configure, node_id=node.id)
        self._tree = ProcessTree()
        self._workers: dict[tuple[int, int, int], wire.WorkerStarted] = {}  # processes that may leave files
        self._door: AgentListener | None = None
        self._killed = self._has_reported = False
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        self._tree.add(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> None:
        if self._node.network is None:
            self._start_below()
        else:
            self._start_across(self._node.network)

    def _start_below(self) -> None:
        ours, theirs = socket.socketpair()
        self._link = Link(ours, self._configure.node_timeout_s)
        fds = [theirs.fileno()]
        planted = seed.planted() if self._configure.start_method == "fork" else None
        grown = planted.grow() if planted is not None else None
        if grown is not None:
            self._tree.add(grown[0])
            fds.append(grown[1].fileno())
        with theirs:
            self._run([], ["child", str(os.getpid()), *map(str, fds)], fds)
        if grown is not None:
            grown[1].close()
        self._link.send(self._configure)

    def _start_across(self, network: Network) -> None:
        """The token goes through a pipe: arguments and variables can be read by others."""
        self._door = AgentListener(network.driver_address)
        told = {"host": self._door.host, "port": self._door.port, "token": self._door.token.hex()}
        reading, writing = os.pipe()
        with open(writing, "wb") as file:
            file.write(json.dumps(told).encode())
        try:
            self._run(list(network.command), ["caller", str(reading)], [reading])
        finally:
            os.close(reading)

    def _run(self, prefix: list[str], arguments: list[str], fds: list[int]) -> None:
        # The script's modules and nothing else: a queue.py in the working directory must not stand in for Python's own.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONSAFEPATH": "1"}
        mark = leftovers.mark(self._configure.run_key or self._configure.run_dir, self._configure.epoch)
        command = [*prefix, sys.executable, "-m", "holdfast.node.agent_entry", mark, *arguments]
        self._process = subprocess.Popen(
            command, pass_fds=fds, env=env, start_new_session=True, stdin=subprocess.DEVNULL
        )

    def serve(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None:
        """Deliver the agent's messages until it has exited."""
        if self._door is not None:
            deadline = time.monotonic() + _CONNECT_WITHIN_S
            sock = self._door.admit(lambda: self._is_starting and time.monotonic() < deadline)
            self._door.close()
            if sock is None:
                return
            self._link = Link(sock, self._configure.node_timeout_s)
            self._link.send(self._configure)
        if self._link is None or self._killed:
            return

        def heed(message: wire.Message) -> None:
            self._take_note(message)
            deliver(message)

        self._link.converse(inbox, heed)

    def _take_note(self, message: wire.Message, run: int = 0) -> None:
        match message:
            case wire.OfRun(number, said) if not isinstance(said, wire.NodeReady):
                self._take_note(said, number)
            case wire.NodeReady(pid=pid):
                self._tree.add(pid)  # the command that runs it may have forked
            case wire.WorkerStarted(attempt_number, rank):
                self._tree.add_children(self.pid)
                self._tree.add(message.pid)
                for key in [key for key, known in self._workers.items() if known.pid == message.pid]:
                    del self._workers[key]  # it was a standby
                self._workers[run, attempt_number, rank] = message
            case wire.WorkerHasReturned(attempt_number, rank):
                self._workers.pop((run, attempt_number, rank), None)  # files that it leaves belong to its user
            case wire.RunClosed(number):
                for key in [key for key in self._workers if key[0] == number]:
                    del self._workers[key]
            case wire.Reports() | wire.NodeNews() if not self._has_reported:
                self._has_reported = True
                self._warm_the_seed()

    def _warm_the_seed(self) -> None:
        """Prepare imports for nodes that join from now on, and for the script's next ``fit()``: their workers should
        find these modules imported."""
        planted = seed.planted() if self._configure.start_method == "fork" and self._configure.preload else None
        if planted is not None:
            planted.warm(self._configure.preload)

    @property
    def _is_starting(self) -> bool:
        return not self._killed and self._process.poll() is None

    def kill(self) -> None:
        """Kill it immediately, with all processes below it. May be called from any thread."""
        self._killed = True
        self._tree.kill()
        self._process.kill()
        if self._link is not None:
            self._link.hang_up()

    def await_end(self, is_lost: Callable[[], bool]) -> None:
        """When this returns, all processes have exited. A process that hangs in the kernel, where it cannot be killed,
        is waited for as long as the run continues; otherwise the agent has ended the processes below it."""
        if self._link is not None and not self._killed:
            self._await_own_end(self._link)
        self._tree.kill()
        self._process.kill()
        self._process.wait()
        warned = False
        while (left := self._tree.wait(_GONE_WITHIN_S)) and is_lost():
            if not warned:
                states = ", ".join(f"{pid} ({processes.state(pid)})" for pid in left)
                print(
                    f"holdfast: waiting for the end of killed processes of {self._node.id}: {states}", file=sys.stderr
                )
            warned = True
        self._close()
        for worker in self._workers.values() if is_lost() else ():
            remove_temporary_files(worker.pid, worker.mark, self._configure.env)

    def _close(self) -> None:
        for part in (self._door, self._link, self._tree):
            if part is not None:
                part.close()

    def _await_own_end(self, link: Link) -> None:
        """The agent has closed the connection, or is silent. A cut-off agent lives until its lease has expired, and
        only then may the next attempt start: on another machine it could not be killed."""
        if self._node.network is not None:
            link.close()
            over = link.heard_at + self._configure.node_timeout_s + FENCE_MARGIN_S
            self._wait_for_process(over - time.monotonic())
        elif not link.silent:
            self._wait_for_process(_GONE_WITHIN_S)

    def _wait_for_process(self, within_s: float) -> None:
        try:
            self._process.wait(max(0.0, within_s))
        except subprocess.TimeoutExpired:
            pass
