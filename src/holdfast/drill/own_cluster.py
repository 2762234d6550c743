"""The Ray cluster of a drill: its nodes are raylets on this machine, and only the drill uses them.

The driver of a run requests the cluster, its nodes and their end through files on the stage. All runs of a drill share
the cluster; nodes that one of them removed are replaced for the next. The head has no capacity for workers and is never
removed: the drivers are on its machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from holdfast.drill.process_start import signals_held, start
from holdfast.drill.stage import NodeShape, Stage, marked
from holdfast.node.process_tree import ProcessTree
from holdfast.platform import processes

_HEAD = "drill-head"
MARK = "HOLDFAST_DRILL_CLUSTER"  # in the environment of all that is started here, also if it is orphaned
_START = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
_QUIET = ("--include-log-monitor=false",)  # the output of the script has nothing from the nodes
_AS_HEAD = ("--head", "--port=0", "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false")
_PORTS = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port", "metrics-export-port")
_STARTED = b"Ray runtime started"
_STORE = 100 << 20  # bytes of shared memory for Ray's objects, on each node
_TRIES = 3  # a busy machine may be too slow for Ray's own limits
_ENDED_WITHIN_S = 15.0
_LOOK_EVERY_S = 0.05
_OURS = "hf-"  # how the names of agents, zygotes and workers begin


@dataclass(frozen=True)
class _Order:
    """A node that is to be started."""

    name: str
    options: Sequence[str]
    shape: NodeShape | None = None
    tries: int = 1


@dataclass(frozen=True)
class _Node:
    order: _Order
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def has_started(self) -> bool:
        return _STARTED in self.log.read_bytes()


class OwnCluster:
    """``mark`` is the drill's directory."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self._orders: list[_Order] = []
        self._nodes: dict[str, _Node] = {}
        self._goes_at: dict[str, float] = {}  # the nodes to remove, and when
        self._home: Path | None = None
        self._address = self._failed = ""
        self._numbered = 0

    def __enter__(self) -> OwnCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def attend(self, stage: Stage) -> None:
        """Carry out what the run has requested since the last call. Waits only for the end of a killed node."""
        if not stage.wants_cluster:
            return
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="hf-ray-"))  # short, as Ray makes sockets in it
            more = [f"--ray-client-server-port={_free_ports(1)[0]}"] if importlib.util.find_spec("grpc") else []
            self._orders.append(_Order(_HEAD, [*_AS_HEAD, f"--temp-dir={self._home}", *more]))
        self._start_next()
        self._address = self._address or self._read_address()
        if self._failed:
            stage.say_cluster_failed(self._failed)
        if self._address:
            stage.say_cluster_address(self._address)
            for shape in stage.take_asked_nodes():
                self._add(shape)
        self._goes_at |= stage.take_asked_to_go()
        for name in [name for name, moment in self._goes_at.items() if moment <= time.time()]:
            self._kill(name)

    def clear(self) -> int:
        """After a run: removes the nodes that were to be removed and all its processes; returns how many had to be
        killed."""
        for name in list(self._goes_at):
            self._kill(name)
        deadline = time.monotonic() + _ENDED_WITHIN_S
        while self._of_runs() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        left = self._of_runs()
        _end(left)
        return len(left)

    def close(self) -> None:
        if self._home is None:
            return
        for name in sorted(self._nodes, key=lambda name: name == _HEAD):
            self._kill(name)
        deadline = time.monotonic() + _ENDED_WITHIN_S
        while (left := marked(MARK, self._mark)) and time.monotonic() < deadline:
            _end(left)
            time.sleep(_LOOK_EVERY_S)
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = None

    def _of_runs(self) -> list[int]:
        there = [] if self._home is None else marked(MARK, self._mark)
        return [pid for pid in there if processes.name(pid).startswith(_OURS)]

    def _add(self, shape: NodeShape) -> None:
        """Make sure that there are this many nodes of that kind."""
        there = [node.order for node in self._nodes.values() if node.process.poll() is None]
        for _ in range(shape.count - sum(1 for order in [*there, *self._orders] if order.shape == shape)):
            self._numbered += 1
            where = [f"--address={self._address}", *_own_address(self._numbered)]
            self._orders.append(_Order(f"drill-{self._numbered}", [*where, *_options(shape)], shape))

    def _start_next(self) -> None:
        """One by one: nodes that start at the same time give their sockets the same name. What ended before it had
        started is tried again."""
        for name, node in list(self._nodes.items()):
            if node.has_started:
                continue
            if node.process.poll() is None:
                return
            del self._nodes[name]
            if node.order.tries < _TRIES:
                self._orders.insert(0, replace(node.order, tries=node.order.tries + 1))
            else:
                words = " ".join(node.log.read_text(errors="replace").strip().splitlines()[-1:])
                self._failed = f"holdfast drill could not start a Ray node on this machine: {words}"
        if self._orders:
            self._start(self._orders.pop(0))

    def _start(self, order: _Order) -> None:
        assert self._home is not None
        log = self._home / f"{order.name}.log"
        named = [f"--node-name={order.name}", f"--object-store-memory={_STORE}"]
        ports = [f"--{port}={number}" for port, number in zip(_PORTS, _free_ports(len(_PORTS)), strict=True)]
        command = [*_START, *_QUIET, *order.options, *named, *ports]
        with signals_held() as mask, log.open("wb") as output:
            process = start(command, self._environment(self._home), output, mask)
            self._nodes[order.name] = _Node(order, process, log)

    def _environment(self, home: Path) -> dict[str, str]:
        temporary = home / "tmp"
        (temporary / "ray").mkdir(parents=True, exist_ok=True)  # Ray notes its newest cluster there
        theirs = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        # As a script has it; else nodes would ask for a token wherever the user has one, and the script would not know
        theirs.setdefault("RAY_AUTH_MODE", "disabled")
        return {**theirs, MARK: str(self._mark), "TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}

    def _read_address(self) -> str:
        assert self._home is not None
        if _HEAD not in self._nodes or not self._nodes[_HEAD].has_started:
            return ""
        with contextlib.suppress(FileNotFoundError):
            return (self._home / "ray_current_cluster").read_text().strip()
        return ""

    def _kill(self, name: str) -> None:
        """As if the machine had lost power: everything that runs there is killed immediately."""
        self._goes_at.pop(name, None)
        node = self._nodes.pop(name, None)
        if node is None:
            return
        tree = ProcessTree()
        tree.add(node.process.pid)
        tree.kill()
        node.process.wait()
        tree.wait(_ENDED_WITHIN_S)
        tree.close()


def _own_address(number: int) -> list[str]:
    """Older releases of Ray take a driver to be on any node that has its address, and its job for ended with that."""
    return [f"--node-ip-address=127.0.{1 + number // 250}.{1 + number % 250}"] if sys.platform == "linux" else []


def _options(shape: NodeShape) -> list[str]:
    """Ray takes only whole numbers of CPUs and bytes, and finds the GPUs itself."""
    more = {name: amount for name, amount in shape.resources.items() if name not in ("CPU", "GPU", "memory")}
    options = [f"--num-cpus={math.ceil(shape.resources.get('CPU', 0.0))}"]
    if not shape.resources.get("GPU"):
        options.append("--num-gpus=0")
    if "memory" in shape.resources:
        options.append(f"--memory={math.ceil(shape.resources['memory'])}")
    if more:
        options.append(f"--resources={json.dumps(more)}")
    if shape.labels:
        options.append("--labels=" + ",".join(f"{name}={value}" for name, value in shape.labels.items()))
    return options


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def _end(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
