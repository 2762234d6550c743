"""Nodes on this machine that can be added and removed, so that node loss, preemption and scaling can be tried for real.

A node exists independently of the runs that use it. Each run has its own agent on every node, with its own processes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

from holdfast.engine.engine_interface import Inbox
from holdfast.engine.local.agent_process import LocalNode, Network
from holdfast.engine.node_member import Member, MemberSession
from holdfast.errors import HoldfastError
from holdfast.wire import messages as wire

T = TypeVar("T")
_ENDED_WITHIN_S = 12.0  # how long agents may take to end in good order; then they are killed
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class LocalCluster:
    """Logical nodes on this machine, each with its own agent and process tree. You may call its methods from any
    thread.

    with LocalCluster() as cluster:
        a = cluster.add_node(cpus=1)
        TorchTrainer(..., run_config=RunConfig(engine=cluster)).fit()
    """

    grows = True
    is_this_machine = False

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._nodes: dict[str, LocalNode] = {}
        self._drains: dict[str, threading.Timer] = {}
        self._sessions: list[ClusterSession] = []
        self._named = 0
        self._closed = False

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(node.id for node in self.nodes)})"

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """The current nodes, including those that are draining."""
        with self._lock:
            return tuple(self._nodes.values())

    def add_node(
        self,
        cpus: float = 1,
        gpus: float = 0,
        *,
        labels: Mapping[str, str] | None = None,
        node_id: str | None = None,
        network: Network | None = None,
    ) -> str:
        """Add a node and return its id. Current runs may use it immediately."""
        if not cpus > 0 or not gpus >= 0:
            raise ValueError(f"add_node(cpus={cpus!r}, gpus={gpus!r}): pass cpus above 0 and gpus of 0 or more")
        if node_id is not None and not _NAME.fullmatch(node_id):
            raise ValueError(
                f"add_node(node_id={node_id!r}): use letters, digits, '.', '_' and '-', without a leading '.'"
            )
        with self._lock:
            if self._closed:
                raise ValueError("the cluster is closed: create another LocalCluster")
            if node_id in self._nodes:
                raise ValueError(f"add_node(node_id={node_id!r}): a node with that name exists; remove it first")
            node = LocalNode(node_id or self._new_name(), float(cpus), float(gpus), dict(labels or {}), network)
            self._nodes[node.id] = node
            for session in self._sessions:
                session.add(node)
        return node.id

    def remove_node(self, node_id: str) -> None:
        """Kill all processes of the node, as if its machine had lost power."""
        with self._lock:
            self._known(node_id)
            del self._nodes[node_id]
            timer = self._drains.pop(node_id, None)
            gone = [member for session in self._sessions if (member := session.drop(node_id)) is not None]
        if timer is not None:
            timer.cancel()
        for member in gone:
            member.remove()
        for member in gone:
            member.join(_ENDED_WITHIN_S)

    def drain_node(self, node_id: str, deadline_s: float = 30.0) -> None:
        """Send runs a preemption notice for the node, and remove the node after ``deadline_s`` seconds."""
        if not deadline_s >= 0:
            raise ValueError(f"drain_node(deadline_s={deadline_s!r}): pass 0 or more seconds")
        with self._lock:
            self._known(node_id)
            before = self._drains.get(node_id)
            if before is not None:
                before.cancel()
            timer = threading.Timer(deadline_s, self._remove_drained, [node_id])
            timer.name, timer.daemon = f"holdfast-drain-{node_id}", True
            self._drains[node_id] = timer
            for session in self._sessions:
                session.drain(node_id, deadline_s)
            timer.start()

    def close(self) -> None:
        """Remove all nodes. A run that still uses them ends with an error."""
        with self._lock:
            self._closed = True
            sessions, nodes, timers = list(self._sessions), list(self._nodes), list(self._drains.values())
        for session in sessions:
            session.fail(
                HoldfastError("the LocalCluster was closed while the run used it: keep it open until fit() ends")
            )
        for node_id in nodes:
            self._remove_if_there(node_id)
        for timer in timers:
            timer.cancel()
            if timer is not threading.current_thread():
                timer.join()

    def _remove_drained(self, node_id: str) -> None:
        with self._lock:
            if self._drains.get(node_id) is not threading.current_thread():
                return  # another notice has taken the place of this one
        self._remove_if_there(node_id)

    def _remove_if_there(self, node_id: str) -> None:
        try:
            self.remove_node(node_id)
        except ValueError:
            pass  # another thread was quicker

    def _known(self, node_id: str) -> LocalNode:
        if node_id not in self._nodes:
            raise ValueError(f"the cluster has no node {node_id!r}. Its nodes: {', '.join(self._nodes) or 'none'}")
        return self._nodes[node_id]

    def _new_name(self) -> str:
        while True:
            self._named += 1
            name = f"node-{self._named}"
            if name not in self._nodes:
                return name

    def _stays(self, node_id: str) -> bool:
        with self._lock:
            return node_id in self._nodes and node_id not in self._drains

    # As an engine

    def check(self, gpus: float) -> None:
        """Nodes may join at any time."""

    def open(self, configure: wire.Configure, inbox: Inbox) -> ClusterSession:
        """An agent for the run on each node, and on those that are added while it continues."""
        with self._lock:
            if self._closed:
                raise ValueError("the cluster is closed: keep the LocalCluster open until fit() ends")
            session = ClusterSession(configure, inbox, self._stays, self._forget)
            self._sessions.append(session)
            for node in self._nodes.values():
                if node.id not in self._drains:
                    session.add(node)
        return session

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return run()  # the driver handles signals itself

    def _forget(self, session: ClusterSession) -> None:
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)


class ClusterSession(MemberSession[Member]):
    """The nodes of one run. The cluster adds and drops them."""

    def __init__(
        self,
        configure: wire.Configure,
        inbox: Inbox,
        stays: Callable[[str], bool],
        on_close: Callable[[ClusterSession], None],
    ) -> None:
        self._configure, self._inbox = configure, inbox
        self._stays, self._on_close = stays, on_close
        self._members: dict[str, Member] = {}
        self._all: list[Member] = []  # also those that are being removed

    def add(self, node: LocalNode) -> None:
        self._members[node.id] = member = Member(node, self._configure, self._inbox, self._stays)
        self._all = [other for other in self._all if not other.join(0.0)] + [member]

    def drop(self, node_id: str) -> Member | None:
        return self._members.pop(node_id, None)

    def drain(self, node_id: str, deadline_s: float) -> None:
        if node_id in self._members:
            self._members[node_id].drain(deadline_s)

    def fail(self, error: Exception) -> None:
        self._inbox.put(error)

    def close(self) -> None:
        self._on_close(self)  # from now on no node is added
        for member in self._all:
            member.shut_down()
        for member in self._all:
            if not member.join(_ENDED_WITHIN_S):
                member.remove()
                member.join(_ENDED_WITHIN_S)
