"""A node's part in one run: its agent, and a new agent if that one dies, until the node is removed or the run has
ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from holdfast.engine.engine_interface import Inbox
from holdfast.engine.local.agent_process import AgentProcess, LocalNode
from holdfast.errors import HoldfastError
from holdfast.wire import messages as wire
from holdfast.worker.run_address import address_in

_IN_VAIN = 5  # starts of an agent that never gets ready, after which the run is told why it waits
_BACKOFF_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)


class AgentHandle(Protocol):
    """An agent on a node, wherever that is."""

    def serve(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None: ...
    def send(self, message: wire.Message) -> None: ...
    def shut_down(self) -> None: ...
    def kill(self) -> None: ...
    def await_end(self, is_lost: Callable[[], bool]) -> None: ...


class Member:
    """One thread starts the node's agents and receives from them: the kernel kills an agent with the thread that
    started it."""

    def __init__(self, node: LocalNode, configure: wire.Configure, inbox: Inbox, stays: Callable[[str], bool]) -> None:
        self._node, self._configure, self._inbox = node, configure, inbox
        self._stays = stays  # whether the node gets another agent after this one has exited
        self._lock = threading.Lock()
        self._agent: AgentHandle | None = None
        self._ready = 0  # the pid of the agent, once it has said that it is ready
        self._accepted = 0  # the pid of the agent that the driver knows
        self._drain_by: float | None = None
        self._over = threading.Event()  # the run has ended, or the node is removed
        self._removed = False
        self._thread = threading.Thread(target=self._live, name=f"holdfast-{node.id}", daemon=True)
        self._thread.start()

    def accept(self, pid: int) -> None:
        self._accepted = pid

    def send(self, message: wire.Message) -> None:
        with self._lock:
            if self._agent is not None and self._ready == self._accepted:
                self._send(self._agent, message)

    def _send(self, agent: AgentHandle, message: wire.Message) -> None:
        agent.send(message)

    def drain(self, deadline_s: float) -> None:
        with self._lock:
            self._drain_by = time.monotonic() + deadline_s
            if self._ready:  # otherwise it is sent when the driver knows of the node
                self._say(wire.NodeDraining(self._node.id, deadline_s))

    def remove(self) -> None:
        """As if the machine had lost power."""
        with self._lock:
            self._removed = True
            self._over.set()
            if self._agent is not None:
                self._agent.kill()

    def shut_down(self) -> None:
        """The run has ended: the agent exits normally."""
        with self._lock:
            self._over.set()
            if self._agent is not None:
                self._agent.shut_down()

    def join(self, within_s: float | None = None) -> bool:
        """Whether everything has exited."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    @property
    def _is_lost(self) -> bool:
        """The run continues without it."""
        return self._removed or not self._over.is_set()

    def _live(self) -> None:
        try:
            in_vain, joining = 0, False
            while not self._over.is_set():
                if not joining:
                    self._say(wire.NodeJoining(self._node.id))
                joining = not self._one_agent()
                in_vain = in_vain + 1 if joining else 0
                if not joining and self._is_lost:
                    self._say(wire.NodeLost(self._node.id))
                if not self._stays(self._node.id):
                    break
                self._complain(in_vain)
                self._over.wait(_BACKOFF_S[min(in_vain, len(_BACKOFF_S) - 1)])
            if joining and self._is_lost:
                self._say(wire.NodeLost(self._node.id))
            if self._removed:
                address_in(self._configure).node_lost(self._node.id)
        except Exception as error:
            self._inbox.put(error)  # otherwise the driver would wait forever

    def _one_agent(self) -> bool:
        """From its start to its end; whether it was ready in between."""
        agent = self._start_agent()
        with self._lock:
            self._agent = agent
            if self._removed:
                agent.kill()
            elif self._over.is_set():
                agent.shut_down()
        try:
            agent.serve(self._inbox, self._pass_on)
        except BaseException:
            agent.kill()
            raise
        finally:
            with self._lock:
                ready, self._ready = self._ready, 0
            agent.await_end(lambda: self._is_lost)
            with self._lock:
                self._agent = None
        return ready != 0

    def _start_agent(self) -> AgentHandle:
        return AgentProcess(self._node, self._configure)

    def _gives(self) -> dict[str, Any]:
        """The node's resources for workers, as fields of ``NodeReady``."""
        node = self._node
        return {"cpus": node.cpus, "gpus": node.gpus, "labels": dict(node.labels), "address": node.address}

    def _pass_on(self, message: wire.Message) -> None:
        if not isinstance(message, wire.NodeReady):
            self._say(message)
            return
        with self._lock:
            self._ready = message.pid
            self._say(msgspec.structs.replace(message, **self._gives()))
            if self._drain_by is not None:
                self._say(wire.NodeDraining(self._node.id, max(0.0, self._drain_by - time.monotonic())))

    def _say(self, message: wire.Message) -> None:
        self._inbox.put((self._node.id, message))

    def _complain(self, in_vain: int) -> None:
        """A node that cannot be reached may come back; one of this very machine will not."""
        if in_vain == _IN_VAIN and self._node.network is None:
            self._inbox.put(
                HoldfastError(
                    f"the agent of {self._node.id} ended {in_vain} times before it was ready. Its output says why"
                )
            )


M = TypeVar("M", bound=Member)


class MemberSession(Generic[M]):
    """What the driver says to a node goes to its member; to a node that has none any more, nowhere."""

    _members: dict[str, M]  # by the node's name

    def accept(self, node_id: str, pid: int) -> None:
        member = self._members.get(node_id)
        if member is not None:
            member.accept(pid)

    def send(self, node_id: str, message: wire.Message) -> None:
        member = self._members.get(node_id)
        if member is not None:
            member.send(message)
