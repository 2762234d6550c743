"""The driver's handle of an agent on a Ray node: how it is started there, and how its end is detected.

The agent's actor reports that the agent and all processes below it have exited. If the actor cannot, the closed
connection shows that the agent has exited, and the kernel kills the processes below it. If the connection only fell
silent, the agent has ended its workers when its lease has expired.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

import holdfast
from holdfast.engine.agent_link import FENCE_MARGIN_S, Link, LinkedAgent
from holdfast.engine.engine_interface import Inbox
from holdfast.engine.ray.agent_actor import About
from holdfast.engine.ray.connection import LeftClusterError, cluster_address, connected_ray, own_address
from holdfast.errors import HoldfastError
from holdfast.node.handshake import AgentListener
from holdfast.wire import messages as wire
from holdfast.worker.run_address import address_in

_ACTOR_WITHIN_S = 300.0  # a runtime environment may have to be built first
_CONNECT_WITHIN_S = 60.0
_CONFIRM_WITHIN_S = 2.0
_USUALLY_WITHIN_S = 0.5  # the actor says that its agent has exited
_TURN_S = 0.1
_NO_SUCH_MODULE = "HoldfastAgent failed to import"  # so Ray says it
_WHY = ("The actor is dead because", "The actor died because")
_LONGEST = 400
_RAYS_OWN = ("RAY_RAYLET_PID", "RAY_JOB_ID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS", "CUDA_VISIBLE_DEVICES")


class NodeUnusableError(HoldfastError):
    """Nothing can be run on the node, now or later."""


class RayAgent(LinkedAgent):
    """As ``AgentProcess`` is for a process of this machine. ``actor`` makes the actor on the node."""

    def __init__(
        self,
        node_id: str,
        configure: wire.Configure,
        actor: Any,
        env_vars: dict[str, str],
        own_directory: bool,
        on_doubt: Callable[[], None],
    ) -> None:
        self._node_id, self._configure, self._actor = node_id, configure, actor
        self._env_vars, self._own_directory = env_vars, own_directory
        self._on_doubt = on_doubt  # whether the node exists
        self._door: AgentListener | None = None
        self._hosting: Any = None  # the actor's answer when all processes have exited
        self._killed = False
        self.node_is_there = True  # as far as is known
        self.trouble: HoldfastError | None = None  # why there is no agent

    def serve(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None:
        """Start it, and deliver its messages until it has exited."""
        needed = address_in(self._configure).directory_of_all
        about = self._await(self._actor.about.remote(needed), _ACTOR_WITHIN_S)
        if isinstance(about, About):
            self.trouble = self._unusable(about)
        else:
            self.trouble = about or HoldfastError("its Ray actor did not start")
        if self.trouble is not None:
            self.node_is_there = False
            return
        self._door = self._open_door()
        self._hosting = self._actor.host.remote(self._door.host, self._door.port, self._door.token.hex())
        deadline = time.monotonic() + _CONNECT_WITHIN_S
        sock = self._door.admit(lambda: not self._killed and not self._is_over and time.monotonic() < deadline)
        self._door.close()
        if sock is None:
            where = f"the driver at {self._door.host}:{self._door.port}"
            self.trouble = HoldfastError(f"its agent did not reach {where}; the node's logs of Ray may say why")
            return
        link = Link(sock, self._configure.node_timeout_s)
        link.send(self._configured(about))
        self._link = link
        if not self._killed:
            link.converse(inbox, deliver)

    def _open_door(self) -> AgentListener:
        return AgentListener(own_address())

    def _await(self, ref: Any, within_s: float) -> Any:
        """The answer; None if there is none, or it is no longer needed."""
        ray = connected_ray()
        deadline = time.monotonic() + within_s
        while not self._killed and time.monotonic() < deadline:
            done, _ = ray.wait([ref], timeout=_TURN_S)
            if done:
                return self._answer(ray, ref)
        return None

    @property
    def _is_over(self) -> bool:
        done, _ = connected_ray().wait([self._hosting], timeout=0)
        return bool(done)

    def _unusable(self, about: About) -> NodeUnusableError | None:
        if about.version != holdfast.__version__:
            return NodeUnusableError(
                f"{self._node_id} has Holdfast {about.version}, and the driver {holdfast.__version__}: "
                "install the same version on all nodes"
            )
        if not about.reaches_storage:
            return NodeUnusableError(
                f"{self._node_id} does not see the directory {self._configure.run_dir}: on a cluster, set "
                "RunConfig(storage_path=...) to a bucket, or to a directory that all nodes share"
            )
        return None

    def _configured(self, about: About) -> wire.Configure:
        """What workers find is the node's: its variables and paths, and those that the runtime environment adds."""
        ours = {name: value for name, value in self._configure.env.items() if name.startswith(b"HOLDFAST_")}
        env = {name: value for name, value in about.env.items() if name not in _RAYS_OWN and name != "OMP_NUM_THREADS"}
        if about.interface:  # otherwise gloo looks up the host's name, which is wrong on many machines
            env.setdefault("GLOO_SOCKET_IFNAME", about.interface)
        env["RAY_ADDRESS"] = cluster_address()
        for name, value in self._env_vars.items():
            env[name] = value if name in _RAYS_OWN else about.env.get(name, value)  # where Ray has filled in ${...}
        cwd = os.fsencode(about.cwd) if self._own_directory else self._configure.cwd
        return msgspec.structs.replace(
            self._configure,
            node_id=self._node_id,
            env={os.fsencode(name): os.fsencode(value) for name, value in env.items()} | ours,
            sys_path=list(dict.fromkeys([*self._configure.sys_path, *map(os.fsencode, about.sys_path)])),
            cwd=cwd,
        )

    def kill(self) -> None:
        """Kill it immediately. May be called from any thread."""
        self._killed = True
        with suppress(LeftClusterError):  # it ends with the connection
            connected_ray().kill(self._actor)
        if self._link is not None:
            self._link.hang_up()

    def await_end(self, is_lost: Callable[[], bool]) -> None:
        """When this returns, all processes have exited, as far as can be known from here."""
        link, silent = self._link, self._link is not None and self._link.silent
        for part in (self._door, link):
            if part is not None:
                part.close()
        if self._hosting is None:
            return
        lease_s = self._configure.node_timeout_s + FENCE_MARGIN_S
        over = link.heard_at + lease_s if link is not None and silent else time.monotonic() + _CONFIRM_WITHIN_S
        try:
            ray = connected_ray()
        except LeftClusterError:
            return  # it is unknown, and its connection is closed
        usually = min(over, time.monotonic() + _USUALLY_WITHIN_S)
        done, _ = ray.wait([self._hosting], timeout=max(0.0, usually - time.monotonic()))
        if not done:
            if is_lost():
                self._on_doubt()
            done, _ = ray.wait([self._hosting], timeout=max(0.0, over - time.monotonic()))
        answer = self._answer(ray, self._hosting) if done else None
        self.node_is_there = answer is True
        self.trouble = answer if isinstance(answer, HoldfastError) else self.trouble
        if done and not self.node_is_there and silent:
            time.sleep(max(0.0, over - time.monotonic()))  # the actor died, and cannot speak for the agent

    def _answer(self, ray: Any, ref: Any) -> Any:
        """The error, if the actor or its node is lost, or the actor could not be started."""
        try:
            return ray.get(ref)
        except ray.exceptions.RuntimeEnvSetupError as error:
            return NodeUnusableError(f"the runtime environment cannot be set up on {self._node_id}: {error}")
        except ray.exceptions.RayError as error:
            if _NO_SUCH_MODULE in str(error):
                return NodeUnusableError(
                    f"{self._node_id} cannot import Holdfast {holdfast.__version__}: install it on all nodes"
                )
            return HoldfastError(_in_short(error))


def _in_short(error: Exception) -> str:
    """The line that says why; Ray says much else."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = [line for line in lines if line.startswith(_WHY)]
    last = lines[-1:] if 'File "' in str(error) else lines[:1]
    return " ".join(why[:1] or last)[:_LONGEST]
