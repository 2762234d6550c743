"""In the driver of a drill: watch its workers, and inject the faults that belong to the driver or its nodes.

The engine of the script is wrapped: messages of its agents pass through here before the driver receives them.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from holdfast.drill import disk_faults, nodes, on_ray
from holdfast.drill.cluster_request import requested_cluster
from holdfast.drill.nodes import Ground
from holdfast.drill.rehearsed import Rehearsed
from holdfast.drill.stage import Stage
from holdfast.driver.plan import Plan
from holdfast.engine.engine_interface import Engine, EngineSession, Inbox
from holdfast.engine.ray.ray_engine import RayEngine
from holdfast.wire import messages as wire
from holdfast.wrapper import Wrapper

T = TypeVar("T")
_SOON_S = 30.0  # a longer timeout is shortened to this


def wrapper(directory: str) -> Wrapper:
    return _Drill(Stage(Path(directory)))


class _Drill(Wrapper):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def storage(self, given: Any) -> Any:
        return self._stage.storage

    def run(self, plan: Any, engine: Engine) -> tuple[Any, Engine]:
        stage = self._stage
        rehearsed = replace(plan, payload=cloudpickle.dumps(Rehearsed(str(stage.directory), plan.payload)))
        disk_faults.install(stage)
        on_them = on_ray if isinstance(engine, RayEngine) else nodes
        ground: Ground = on_them.ground(engine, plan, stage)
        return rehearsed, StagedEngine(ground.engine, Director(stage, plan, ground))

    def ray_address(self) -> str | None:
        return requested_cluster(self._stage.directory)

    def check_experiment(self) -> None:
        """A drill has its own storage for runs; an experiment would resume the stored one at its path."""
        raise ValueError(
            "holdfast drill tests training runs, not experiments. Give it a script that runs the train function with "
            "a trainer and one configuration, as in DataParallelTrainer(train_fn, train_loop_config={...}).fit()"
        )


class Director:
    """Knows the progress of the run, and injects the faults that do not belong to a worker."""

    def __init__(self, stage: Stage, plan: Plan, ground: Ground) -> None:
        self._stage, self._nodes = stage, ground.nodes
        self._run = plan.name
        ends_hangs = 0 < plan.spec.hang_timeout_s <= _SOON_S
        self._facts = {"hang_timeout": ends_hangs, "cannot": ground.cannot}
        self._bases: dict[int, int] = {}

    def attempt_starts(self, order: wire.StartWorkers) -> None:
        self._bases[order.attempt_number] = order.base
        self._stage.note_attempt(self._run, order.attempt_number, {**self._facts, "base": order.base})

    def hear(self, node: str, message: wire.Message) -> None:
        fault = self._stage.fault
        if isinstance(message, wire.NodeNews):
            for one in message.of:
                self.hear(node, one)
        if fault is None or not isinstance(message, wire.Reports) or fault.kind.where == "worker":
            return
        step = self._bases[message.attempt_number] + message.reports[-1].index + 1
        if fault.point != "report" or message.rank != fault.rank or step < fault.step:
            return
        if self._stage.strike(step, message.attempt_number):
            print(f"holdfast drill: {fault} strikes", file=sys.stderr, flush=True)
            if fault.name == "driver-kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._nodes is not None and fault.kind.where == "nodes":
                nodes.strike(fault, self._nodes, node)

    def explained(self, item: Any) -> Any:
        """The driver's inbox, with remedies in error messages that help in a drill."""
        return on_ray.explained(item, self._stage)


class StagedEngine:
    def __init__(self, engine: Engine, director: Director) -> None:
        self._engine, self._director = engine, director
        self.grows, self.is_this_machine = engine.grows, engine.is_this_machine

    def check(self, gpus: float) -> None:
        self._engine.check(gpus)

    def open(self, configure: wire.Configure, inbox: Inbox) -> StagedSession:
        passing: Any = _PassingInbox(inbox, self._director)
        return StagedSession(self._engine.open(configure, passing), self._director)

    def host(self, run: Callable[[], T], ask_to_stop: Callable[[int, bool], None]) -> T:
        return self._engine.host(run, ask_to_stop)


class StagedSession:
    def __init__(self, session: EngineSession, director: Director) -> None:
        self._session, self._director = session, director

    def accept(self, node_id: str, pid: int) -> None:
        self._session.accept(node_id, pid)

    def send(self, node_id: str, message: wire.Message) -> None:
        if isinstance(message, wire.StartWorkers):
            self._director.attempt_starts(message)
        self._session.send(node_id, message)

    def close(self) -> None:
        self._session.close()


class _PassingInbox:
    """The driver's inbox, past the director."""

    def __init__(self, inbox: Inbox, director: Director) -> None:
        self._inbox, self._director = inbox, director

    def put(self, item: Any) -> None:
        if isinstance(item, tuple):
            self._director.hear(*item)
        self._inbox.put(self._director.explained(item))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inbox, name)
