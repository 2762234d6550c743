"""The nodes of one run on a Ray cluster: one thread polls Ray for their state and for granted resources.

Ray does not notify a driver, so it is polled a few times a second, which costs about a millisecond. Nothing urgent
depends on that: the agent's connection shows immediately that a node is lost.
"""

from __future__ import annotations

import hashlib
import logging
import math
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import islice

from holdfast.engine.demand import Demand
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.local.agent_process import LocalNode
from holdfast.engine.node_member import MemberSession
from holdfast.engine.ray.connection import LeftClusterError, add_user, remove_user
from holdfast.engine.ray.ray_capacity import fits, room_in, why_waiting
from holdfast.engine.ray.ray_member import RayMember
from holdfast.engine.ray.ray_nodes import RayNode, look
from holdfast.engine.ray.reservation import remove_left_behind
from holdfast.engine.ray.trial_grants import GrantRequest, TrialGrants
from holdfast.engine.ray.worker_grants import WorkerGrants
from holdfast.errors import HoldfastError
from holdfast.wire import messages as wire

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.2
_LOOK_FOR_ROOM_EVERY_S = 0.05
_LOOK_FIRST_EVERY_S = 0.02
_FIRST_LOOKS_S = 2.0  # how long to wait for existing nodes before the run starts with what it has
_EXPLAIN_AFTER_S = 5.0  # why there are no resources
_BLIND_FOR_S = 60.0  # how long the cluster may not answer
_ENDED_WITHIN_S = 12.0
_LEFT_WITHIN_S = 30.0
_SOME_DAY_S = 120.0  # the deadline of a node that is drained without one


class RaySession(MemberSession[RayMember]):
    def __init__(self, demand: Demand, configure: wire.Configure, inbox: Inbox) -> None:
        self._demand, self._configure, self._inbox = demand, configure, inbox
        self._members: dict[str, RayMember] = {}  # by our name of the node
        self._alive: dict[str, RayNode] = {}  # by Ray's
        self._idle_since: dict[str, float] = {}  # members without our resources
        self._leaving: dict[str, threading.Thread] = {}  # nodes whose agents exit because they are not needed
        self._drained: set[str] = set()
        self._over = threading.Event()
        self._has_reported = threading.Event()  # some worker
        self._soon = threading.Event()  # something is to be looked at now
        self._asked_at = -math.inf  # when resources were last requested
        self._explain_at = time.monotonic() + _EXPLAIN_AFTER_S
        self._thread = threading.Thread(target=self._watch, name="holdfast-ray", daemon=True)
        place = hashlib.sha256(configure.run_key.encode()).hexdigest()[:8]
        name = f"holdfast:{configure.run_name}:{place}"
        remove_left_behind(name)  # no other driver has the run now
        self._seats: WorkerGrants | TrialGrants = TrialGrants(name) if demand.by_request else WorkerGrants(demand, name)
        self._looked, self._closed = threading.Event(), threading.Event()
        self._looks_no_more, self._may_release = threading.Event(), threading.Event()
        add_user(self)
        self._thread.start()
        self._looked.wait(_FIRST_LOOKS_S)  # so that the driver first learns of the existing nodes
        self._looked.set()

    # Calls of the driver

    def reserve(
        self, key: str, bundles: Sequence[Mapping[str, float]], strategy: str, labels: Sequence[Mapping[str, str]]
    ) -> None:
        assert isinstance(self._seats, TrialGrants), "a run's own demand says what it asks for"
        self._seats.reserve(key, GrantRequest(bundles, strategy, labels))
        self._asked_at = time.monotonic()
        self._soon.set()

    def give_back(self, key: str) -> None:
        assert isinstance(self._seats, TrialGrants), "a run's own demand says what it asks for"
        self._seats.give_back(key)
        self._soon.set()

    def leave(self) -> None:
        """From any thread: the driver is to end this."""
        self._inbox.put(LeftClusterError())
        self._closed.wait(_LEFT_WITHIN_S)

    def close(self) -> None:
        self._over.set()
        self._soon.set()
        self._looks_no_more.wait(_ENDED_WITHIN_S)  # it may be asking a cluster that is lost
        for leaving in list(self._leaving.values()):
            leaving.join(2 * _ENDED_WITHIN_S)
        members = list(self._members.values())
        for member in members:
            member.shut_down()
        for member in members:
            _end(member)
        for member in members:
            try:
                member.end_actor()
            except Exception as error:  # Ray ends them when this process does
                log.debug("the cluster did not answer: %s", error)
        self._may_release.set()
        self._thread.join(_ENDED_WITHIN_S)
        remove_user(self)
        self._closed.set()

    # What Ray says

    def _watch(self) -> None:
        """Requests are released by the thread that makes them, so that none is made afterwards."""
        self._look_until_over()
        self._looks_no_more.set()
        self._may_release.wait()
        self._seats.release()

    def _look_until_over(self) -> None:
        seen_at = time.monotonic()
        while not self._over.is_set():
            try:
                self._look()
                seen_at = time.monotonic()
            except LeftClusterError as error:
                self._inbox.put(error)
                return
            except ValueError as error:
                self._inbox.put(ValueError(f"Ray rejected the run's request: {error}"))
                return
            except Exception as error:
                log.debug("the cluster did not answer: %s", error)
                if time.monotonic() > seen_at + _BLIND_FOR_S:
                    self._inbox.put(HoldfastError(f"the Ray cluster is no longer reachable: {error}"))
                    return
            self._soon.wait(self._pause)
            self._soon.clear()

    @property
    def _pause(self) -> float:
        if not self._looked.is_set():
            return _LOOK_FIRST_EVERY_S
        return _LOOK_FOR_ROOM_EVERY_S if time.monotonic() < self._asked_at + _FIRST_LOOKS_S else _LOOK_EVERY_S

    def _look(self) -> None:
        self._alive = look()
        self._seats.look(self._alive)
        if self._over.is_set():
            return
        going = {node.id for node in self._alive.values() if node.drain_by is not None}
        if self._seats.balance(going | self._in_doubt(), going, self._is_busy):
            self._asked_at = time.monotonic()
        seats = self._seats.by_node()
        for held in [self._alive[ray_id] for ray_id in self._seats.nodes() if ray_id in self._alive]:
            if held.name not in {*self._members, *self._leaving} and held.drain_by is None:
                self._add(held)
        for node in self._reserve(seats) if self._looked.is_set() else ():
            self._add(node)
        for member in list(self._members.values()):
            member.seat(seats.get(member.ray_id, []))
            self._tell_of_draining(member)
        if isinstance(self._seats, TrialGrants):
            self._seats.note_shown({member.ray_id for member in self._members.values() if member.is_ready})
            self._leave_idle_nodes(self._seats.nodes())
        if sum(map(len, seats.values())) >= self._demand.most:
            self._looked.set()
        if time.monotonic() > self._explain_at:
            self._explain_at = math.inf
            if isinstance(self._seats, WorkerGrants) and not self._seats.has_begun:
                print(f"holdfast: {why_waiting(self._demand)}", file=sys.stderr)

    def _leave_idle_nodes(self, held: set[str]) -> None:
        """An agent is an actor, which keeps the autoscaler from taking its node for idle."""
        now = time.monotonic()
        for name, member in list(self._members.items()):
            if member.ray_id in held or not member.is_ready:
                self._idle_since.pop(name, None)
            elif now >= self._idle_since.setdefault(name, now) + self._demand.idle_s:
                del self._members[name], self._idle_since[name]
                thread = threading.Thread(target=self._let_go, args=(name, member), name=f"holdfast-leave-{name}")
                self._leaving[name] = thread
                thread.start()

    def _let_go(self, name: str, member: RayMember) -> None:
        """After it has exited, the node may have another agent."""
        try:
            _end(member)
            member.end_actor()
        except Exception as error:  # Ray ends it when this process does
            log.debug("the cluster did not answer: %s", error)
        self._inbox.put((name, wire.NodeLost(name)))
        del self._leaving[name]
        self._soon.set()

    def _reserve(self, seats: Mapping[str, list[wire.Seat]]) -> list[RayNode]:
        """Nodes that get an agent before we have resources on them, so that it is ready when we do."""
        members = {member.ray_id: member for member in self._members.values()}
        waiting = sum(1 for id, member in members.items() if id in self._alive and id not in seats)
        fit = (node for node in self._alive.values() if node.id not in members and node.drain_by is None)
        able = (node for node in fit if fits(node, self._demand) and room_in(node.resources, self._demand))
        return list(islice(able, max(0, self._demand.standby - waiting)))

    def _add(self, node: RayNode) -> None:
        if self._over.is_set():
            return
        local = LocalNode(node.name, labels=node.labels)
        what = (node.id, local, node.address, self._demand, self._configure, self._inbox)
        self._members[node.name] = RayMember(*what, self._stays, self._soon.set, self._has_reported)

    def _tell_of_draining(self, member: RayMember) -> None:
        node = self._alive.get(member.ray_id)
        if node is None or node.drain_by is None or node.id in self._drained:
            return
        self._drained.add(node.id)
        member.drain(max(0.0, node.drain_by - time.time()) if node.drain_by else _SOME_DAY_S)

    def _in_doubt(self) -> set[str]:
        """Nodes whose actor is lost, and perhaps they too; Ray has not noticed yet."""
        return {member.ray_id for member in self._members.values() if member.is_doubted} & set(self._alive)

    def _is_busy(self, ray_id: str) -> bool:
        return any(member.ray_id == ray_id and member.is_busy for member in self._members.values())

    def _stays(self, node_id: str) -> bool:
        """Whether the node gets another agent after one has exited."""
        member = self._members.get(node_id)
        node = self._alive.get(member.ray_id) if member is not None else None
        return node is not None and node.drain_by is None and not self._over.is_set()


def _end(member: RayMember) -> None:
    """End it gracefully, or by force."""
    member.shut_down()
    if not member.join(_ENDED_WITHIN_S):
        member.remove()
        member.join(_ENDED_WITHIN_S)
