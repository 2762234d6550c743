"""One run of the soak: a driver in a process of its own, what its plan does to it, and whether anything is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.soak import soak_processes as processes
from support.soak.soak_notes import Notes
from support.soak.soak_plan import Fault, Plan
from support.soak.soak_switch import Port

DRIVER = Path(__file__).with_name("soak_driver.py")
PATIENCE_S = 300.0  # without a new step; a busy machine takes minutes to import torch
ENDED_WITHIN_S = 15.0  # what a killed driver leaves; a node that is cut off counts on its driver for a while
TORCH_CACHE = "torchinductor_"  # which torch makes to keep it
TOLD = {
    "HOLDFAST_NODE_TIMEOUT_S": "3",
    "HOLDFAST_STOPPED_GRACE_S": "0.5",
    "HOLDFAST_PREEMPTION_GRACE_S": "1.5",
    "HOLDFAST_STOP_GRACE_S": "1",
    "HOLDFAST_BAD_NODE_REST_S": "2",
    "HOLDFAST_DISPLAY": "plain",
}


@dataclass
class Struck:
    fault: Fault
    time: float


@dataclass
class Node:
    id: str
    cpus: int
    port: Port | None
    goes: bool = False

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"id": self.id, "cpus": self.cpus}
        if self.port is not None:
            told |= {"command": self.port.command, "driver": self.port.driver, "address": self.port.address}
        return told


@dataclass
class Ended:
    plan: Plan
    notes: Notes
    struck: list[Struck]
    seconds: float
    outcome: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    orphans: int = 0


class SoakRun:
    def __init__(self, plan: Plan, home: Path, ports: list[Port]) -> None:
        self._plan, self._home = plan, home
        self._free = list(ports)
        self._nodes: dict[str, Node] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._struck: list[Struck] = []
        self._left: list[tuple[float, set[int]]] = []  # by whom killed drivers are survived, and until when
        self._outlived: set[int] = set()
        self._drivers = 0
        (home / "tmp").mkdir(parents=True)
        self._notes = Notes(home / "notes")
        self._due = [round(fault.part * plan.steps) for fault in plan.faults]
        for cpus in plan.nodes:
            self._new_node(cpus)

    def go(self) -> Ended:
        began = time.monotonic()
        self._start_driver()
        try:
            wrong = self._until_the_end()
        finally:
            for _, act in self._later:
                act()
            still = self._end_all()
        wrong += [f"left behind: {left}" for left in self._leftovers(still)]
        seconds = time.monotonic() - began
        return Ended(self._plan, self._notes, self._struck, seconds, self._outcome(), wrong, len(still))

    def _until_the_end(self) -> list[str]:
        reached, deadline = 0, time.monotonic() + PATIENCE_S
        while True:
            self._notes.read_on()
            if self._notes.reached > reached:
                reached, deadline = self._notes.reached, time.monotonic() + PATIENCE_S
            code = self._process.poll()
            if code == 0:
                return []
            if code is not None and not self._was_ended(code):
                return [f"the driver ended with {code}: {self._said()}"]
            if code is not None:
                self._close_stdin()
                self._start_driver()
                deadline = time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                return [f"no new step for {PATIENCE_S:.0f} s: {self._stacks()}"]
            self._do_what_is_due()
            self._strike_if_due()
            self._look_for_orphans()
            time.sleep(0.004)

    def _was_ended(self, code: int) -> bool:
        """By us."""
        told = any(s.fault.kind == "driver gets SIGTERM" for s in self._struck)
        random = any(s.fault.kind in ("driver killed", "any process killed") for s in self._struck)
        return (code == 143 and told) or (code == -signal.SIGKILL and random)

    # The driver

    def _start_driver(self) -> None:
        plan = self._plan
        self._nodes = {node.id: node for node in self._nodes.values() if not node.goes}
        config = {name: getattr(plan, name) for name in ("samples", "batch", "epochs", "every", "asks", "in_step")}
        files = {name: str(self._home / name) for name in ("notes", "hangs", "all_struck")}
        config |= {"pause_s": plan.pause_s, "waits_at": plan.waits_at, **files}
        names = ("torch", "workers", "resize_s", "hang_s", "grace_s", "placement")
        orders = {name: getattr(plan, name) for name in names}
        orders |= {"config": config, "nodes": [node.told() for node in self._nodes.values()]}
        env = {**os.environ, **TOLD, "TMPDIR": str(self._home / "tmp"), processes.MARK: str(self._home)}
        env["HOLDFAST_PREFORK"] = "1" if plan.torch else "0"
        if plan.switched:
            env["GLOO_SOCKET_IFNAME"] = "eth0"  # all nodes have the host's name, which tells gloo nothing
        self._drivers += 1
        with open(self._home / f"driver-{self._drivers}.log", "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(DRIVER), str(self._home), json.dumps(orders)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=env,
            )
        self._began = time.monotonic()

    def _tell(self, *order: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a driver that is gone; the next one begins with what there is
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _said(self) -> str:
        return (self._home / f"driver-{self._drivers}.log").read_text(errors="replace")[-3000:]

    def _stacks(self) -> str:
        self._process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        return self._said()

    def _outcome(self) -> dict[str, Any]:
        try:
            outcome: dict[str, Any] = json.loads(self._said().strip().rpartition("\n")[2])
        except json.JSONDecodeError:
            return {}
        return outcome

    # What is done to it

    def _strike_if_due(self) -> None:
        if len(self._struck) == len(self._plan.faults):
            return
        number = len(self._struck)
        fault = self._plan.faults[number]
        if fault.at_once:
            since = self._struck[-1].time if self._struck else self._began
            is_due = time.monotonic() > since + fault.after_s
        else:
            is_due = self._notes.reached >= max(1, self._due[number])
        if not is_due:
            return
        if not fault.at_once:
            time.sleep(fault.after_s)
        now = time.monotonic()
        if self._strike(fault):
            self._struck.append(Struck(fault, now))
            if len(self._struck) == len(self._plan.faults):
                (self._home / "all_struck").touch()

    def _strike(self, fault: Fault) -> bool:
        """False if there is nothing to strike yet."""
        who, _, what = fault.kind.partition(" ")
        if fault.kind == "any process killed":
            return self._signal(fault, processes.below(self._process.pid), signal.SIGKILL)
        if who == "worker":
            return self._strike_worker(fault, what)
        if who == "agent":
            agents = [pid for pid in processes.below(self._process.pid) if processes.name(pid) == "hf-agent"]
            signals = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "gets SIGTERM": signal.SIGTERM}
            if what == "stopped":
                self._after(fault.lasts_s, lambda: self._continue(agents))
            return self._signal(fault, agents, signals[what])
        if who == "driver":
            return self._strike_driver(fault, what)
        if who == "link":
            return self._strike_link(fault, what)
        return self._strike_node(fault, what)

    def _signal(self, fault: Fault, pids: list[int], number: int) -> bool:
        ours = processes.marked(str(self._home))
        there = [pid for pid in pids if pid in ours]
        if not there:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(there[int(fault.choice * len(there))], number)
        return True

    def _continue(self, pids: list[int]) -> None:
        for pid in processes.marked(str(self._home)).intersection(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _strike_worker(self, fault: Fault, what: str) -> bool:
        if not self._notes.attempts:
            return False
        if what == "hangs":
            (self._home / "hangs").touch()
            return True
        pids = list(self._notes.in_order[-1].pids.values())
        return self._signal(fault, pids, signal.SIGKILL if what == "killed" else signal.SIGSTOP)

    def _strike_driver(self, fault: Fault, what: str) -> bool:
        process = self._process
        if what == "stopped for a time":
            process.send_signal(signal.SIGSTOP)
            self._after(fault.lasts_s, lambda: process.send_signal(signal.SIGCONT))
        elif what == "gets SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            left = processes.marked(str(self._home)) - {process.pid}
            process.kill()
            process.wait()
            self._left.append((time.monotonic() + ENDED_WITHIN_S, left))
        return True

    def _strike_link(self, fault: Fault, what: str) -> bool:
        nodes = [node for node in self._nodes.values() if node.port is not None and not node.goes]
        if fault.of_rank is not None:
            home = self._notes.in_order[-1].nodes.get(fault.of_rank)
            nodes = [node for node in nodes if node.id == home]
        if not nodes:
            return False
        node = nodes[int(fault.choice * len(nodes))]
        node.goes, port = fault.forgotten, node.port
        assert port is not None
        (port.silence if what == "cut one way" else port.cut)()
        self._after(fault.lasts_s, port.fix)
        return True

    def _strike_node(self, fault: Fault, what: str) -> bool:
        if what == "joins":
            self._add_node(1)
            return True
        there = [node for node in self._nodes.values() if not node.goes]
        if not there:
            return False
        node = there[int(fault.choice * len(there))]
        node.goes = True
        left = sum(other.cpus for other in there if other is not node)
        successor = fault.replaced_after_s
        if successor is None and left < self._plan.least:
            successor = 0.3
        if successor is not None:
            self._after(successor, lambda: self._add_node(node.cpus))
        self._tell(*(["remove", node.id] if what == "removed" else ["drain", node.id, fault.lasts_s]))
        return True

    def _new_node(self, cpus: int) -> Node:
        port = self._free.pop(0) if self._plan.switched else None
        number = 1 + max((int(id.partition("-")[2]) for id in self._nodes), default=0)
        self._nodes[f"node-{number}"] = node = Node(f"node-{number}", cpus, port)
        return node

    def _add_node(self, cpus: int) -> None:
        self._tell("add", self._new_node(cpus).told())

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, act))

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due = [act for when, act in self._later if when <= now]
        self._later = [(when, act) for when, act in self._later if when > now]
        for act in due:
            act()

    # What is left

    def _look_for_orphans(self) -> None:
        now, waiting = time.monotonic(), self._left
        self._left = []
        for until, pids in waiting:
            alive = {pid for pid in pids if processes.lives(pid)}
            processes.reap(pids - alive)
            if alive and now > until:
                self._outlived |= alive
            elif alive:
                self._left.append((until, alive))

    def _end_all(self) -> set[int]:
        """Those that were still there when the run was over, or long after the death of their driver."""
        mark = str(self._home)
        has_ended = self._process.poll() is not None
        deadline = time.monotonic() + (ENDED_WITHIN_S if has_ended else 0.0)
        while (left := processes.marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._named = {pid: processes.name(pid) for pid in left}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._close_stdin()
        self._process.wait()
        return (left if has_ended else set()) | self._outlived  # else it was we who ended it

    def _leftovers(self, processes_left: set[int]) -> list[str]:
        files = [str(path) for path in (self._home / "tmp").iterdir() if not path.name.startswith(TORCH_CACHE)]
        pids = [pid for attempt in self._notes.attempts.values() for pid in attempt.pids.values()]
        shared = [str(path) for pid in pids for path in Path("/dev/shm").glob(f"holdfast-{pid}-*")]
        named = [f"process {pid} {self._named.get(pid, '')}" for pid in sorted(processes_left)]
        return [*files, *shared, *named]
