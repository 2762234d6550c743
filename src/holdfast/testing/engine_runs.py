"""A small run on an engine. It receives the messages of its nodes and waits for the expected ones, with a time
limit."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from holdfast.engine.engine_interface import Engine, Inbox
from holdfast.platform import processes
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Place
from holdfast.worker import session

M = TypeVar("M", bound=wire.Message)
PATIENCE_S = 240.0  # a Ray cluster on two busy cores is slow


def configure(run_dir: Path, work: Callable[[], Any], **changes: Any) -> wire.Configure:
    settings: dict[str, Any] = {
        "node_id": "",
        "run_name": "run",
        "run_dir": str(run_dir),
        "run_key": str(run_dir),
        "payload": cloudpickle.dumps(work),
        "env": {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()},
        "sys_path": [os.fsencode(path) for path in sys.path],
        "argv": [b"test"],
        "cwd": os.fsencode(run_dir),
        "essential": [],
        "preload": [],
        "start_method": "fork",
        "stop_grace_s": 1.0,
        "metadata": {},
        "validates": False,
    }
    return wire.Configure(**{**settings, **changes})


class Watcher:
    """The messages that a run on the engine receives."""

    def __init__(self, engine: Engine, configuration: wire.Configure) -> None:
        self.inbox: Inbox = queue.SimpleQueue()
        self.session = engine.open(configuration, self.inbox)
        self.seen: list[tuple[str, Any]] = []

    def take(self, kind: type[M], node: str | None = None, **fields: Any) -> M:
        """The next message of that kind, from that node, with these values. Messages before it are kept in ``seen``."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                item = self.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {kind.__name__} of {node} came; but {self.seen}") from None
            if isinstance(item, Exception):
                raise item
            where, message = item
            if isinstance(message, wire.NodeReady):
                self.session.accept(where, message.pid)
            self.seen.append(item)
            if isinstance(message, kind) and node in (None, where) and has(message, fields):
                return message

    def taken(self, kind: type[M], node: str | None = None) -> list[M]:
        """The messages of that kind so far."""
        while not self.inbox.empty():
            item = self.inbox.get()
            if isinstance(item, Exception):
                raise item
            self.seen.append(item)
        return [message for where, message in self.seen if isinstance(message, kind) and node in (None, where)]

    def start(self, node: str, attempt_number: int = 1, ranks: int = 1) -> list[int]:
        """Start an attempt on the node. Returns the workers' pids once they have entered the train function."""
        places = [Place(rank, rank, ranks, 0) for rank in range(ranks)]
        self.session.send(node, wire.StartWorkers(attempt_number, ranks, 0, None, places))
        pids: dict[int, int] = {}
        ready: set[int] = set()
        while len(pids) < ranks or len(ready) < ranks:
            message = self.take(wire.Message, node)
            if isinstance(message, wire.WorkerStarted) and message.attempt_number == attempt_number:
                pids[message.rank] = message.pid
            elif isinstance(message, wire.WorkerIsReady) and message.attempt_number == attempt_number:
                ready.add(message.rank)
        return [pids[rank] for rank in range(ranks)]


def has(message: wire.Message, fields: dict[str, Any]) -> bool:
    return all(getattr(message, name) == value for name, value in fields.items())


def is_gone(pid: int) -> bool:
    return processes.state(pid) in ("", "Z", "X")


def wait_until(holds: Callable[[], Any], what: str = "it") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come to pass"
        time.sleep(0.005)


def parent(pid: int) -> int:
    fields = processes.stat_fields(pid)
    assert fields, "it is gone"
    return int(fields[1])


def below(pid: int) -> list[int]:
    """All living descendants."""
    found = processes.children(pid)
    for child in found:
        found += processes.children(child)
    return found


def wait_for_ever() -> None:
    """A train function, like the next one."""
    session.current().ready()
    while True:
        time.sleep(60)


def wait_with_children() -> None:
    """One forked, one in a separate session."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    wait_for_ever()
