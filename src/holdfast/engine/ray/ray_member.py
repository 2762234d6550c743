"""A Ray node's part in one run: as on a local cluster, with an actor that starts the agents there."""

from __future__ import annotations

import math
import re
import secrets
import sys
import threading
from collections.abc import Callable
from typing import Any

from holdfast.engine.demand import Demand
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.local.agent_process import LocalNode
from holdfast.engine.node_member import AgentHandle, Member
from holdfast.engine.ray.agent_actor import HoldfastAgent
from holdfast.engine.ray.connection import connected_ray
from holdfast.engine.ray.ray_agent import NodeUnusableError, RayAgent
from holdfast.wire import messages as wire

_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f.]*")  # and ids: they differ from try to try


class RayMember(Member):
    def __init__(
        self,
        ray_id: str,
        node: LocalNode,
        address: str,
        demand: Demand,
        configure: wire.Configure,
        inbox: Inbox,
        stays: Callable[[str], bool],
        on_doubt: Callable[[], None],
        has_reported: threading.Event,
    ) -> None:
        self.ray_id, self._address, self._demand = ray_id, address, demand
        self._on_doubt = on_doubt  # so that other resources are requested immediately
        self._has_reported = has_reported  # some worker of the run, on any node
        self._seats: list[wire.Seat] = []
        self._actor: Any = None
        self._latest: RayAgent | None = None
        self._told = ""  # what went wrong, as far as a person was told
        self.is_busy = False  # workers of the run may live there
        self.is_doubted = False  # it has no agent for now, and it is unknown whether it will have one again
        super().__init__(node, configure, inbox, stays)

    def seat(self, seats: list[wire.Seat]) -> None:
        """Ray has granted so many."""
        with self._lock:
            if seats == self._seats:
                return
            self._seats = seats
            if self._ready:  # else it is said when the driver knows of the node
                self._say(wire.NodeSeats(self._node.id, seats))

    @property
    def is_ready(self) -> bool:
        return self._ready != 0

    def end_actor(self) -> None:
        """After everything else has ended."""
        if self._actor is not None:
            connected_ray().kill(self._actor)

    def _gives(self) -> dict[str, Any]:
        return {"cpus": math.inf, "gpus": 0.0, "address": self._address, "seats": self._seats}

    def _send(self, agent: AgentHandle, message: wire.Message) -> None:
        if isinstance(message, wire.StartWorkers | wire.StartStandby):
            self.is_busy = True
        super()._send(agent, message)

    def _pass_on(self, message: wire.Message) -> None:
        if isinstance(message, wire.WorkersGone):
            self.is_busy = False
        if isinstance(message, wire.NodeReady):
            self.is_doubted, self._told = False, ""
        if isinstance(message.message if isinstance(message, wire.OfRun) else message, wire.Reports | wire.NodeNews):
            self._has_reported.set()
        super()._pass_on(message)

    def _start_agent(self) -> AgentHandle:
        if self._latest is not None and not self._latest.node_is_there:
            self.end_actor()
            self._actor = None
        if self._actor is None:
            self._actor = self._new_actor()
        runtime_env = self._runtime_env()
        env_vars = {str(name): str(value) for name, value in runtime_env.get("env_vars", {}).items()}
        own_directory = "working_dir" in runtime_env
        self._latest = RayAgent(self._node.id, self._configure, self._actor, env_vars, own_directory, self._doubt)
        return self._latest

    def _one_agent(self) -> bool:
        was_ready = super()._one_agent()
        self.is_busy = False
        if not was_ready or (self._latest is not None and not self._latest.node_is_there):
            self._doubt()
        else:
            self.is_doubted = False
        return was_ready

    def _doubt(self) -> None:
        self.is_doubted = True
        self._on_doubt()

    def _runtime_env(self) -> dict[str, Any]:
        """The job's runtime environment, merged with the run's."""
        job = dict(connected_ray().get_runtime_context().runtime_env)
        own = dict(self._demand.runtime_env)
        return {**job, **own, "env_vars": {**job.get("env_vars", {}), **own.get("env_vars", {})}}

    def _new_actor(self) -> Any:
        ray = connected_ray()
        name = f"holdfast:{self._configure.run_name}:{self._node.id}:{secrets.token_hex(3)}"
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(self.ray_id, soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "name": name, "scheduling_strategy": where}
        options["lifetime"] = "non_detached"  # whatever the job's default is
        if self._demand.runtime_env:
            options["runtime_env"] = dict(self._demand.runtime_env)
        return ray.remote(HoldfastAgent).options(**options).remote(self._configure.run_name, self._node.id)

    def _complain(self, in_vain: int) -> None:
        """A node that cannot be used may be able to later, and others may join. As long as nothing has run at all, what
        is wrong with one is likely to be wrong with all of them."""
        trouble = self._latest.trouble if self._latest is not None else None
        if isinstance(trouble, NodeUnusableError) and not self._has_reported.is_set():
            self._inbox.put(trouble)
        elif trouble is not None and _NUMBERS.sub("", str(trouble)) != self._told:
            self._told = _NUMBERS.sub("", str(trouble))
            print(f"holdfast: no agent runs on {self._node.id} yet: {trouble}", file=sys.stderr)
