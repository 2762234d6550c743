"""A real agent, and at the other end of its line a driver in miniature that waits, bounded, for what it should say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from holdfast.platform import processes
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack

M = TypeVar("M", bound=wire.Message)
PATIENCE_S = 120.0


def configure(run_dir: Path, work: Callable[[], Any] | None = None, **changes: Any) -> wire.Configure:
    settings: dict[str, Any] = {
        "node_id": "node-0",
        "run_name": run_dir.name,
        "run_dir": str(run_dir),
        "run_key": str(run_dir),
        "payload": cloudpickle.dumps(work) if work else b"",
        "env": {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()},
        "sys_path": [os.fsencode(path) for path in sys.path],
        "argv": [b"test"],
        "cwd": os.fsencode(Path.cwd()),
        "essential": [],
        "preload": [],
        "start_method": "fork",
        "stop_grace_s": 1.0,
        "metadata": {},
        "validates": False,
    }
    return wire.Configure(**{**settings, **changes})


class AgentAtWork:
    def __init__(self, own: wire.Configure) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            command = [
                sys.executable,
                "-m",
                "holdfast.node.agent_entry",
                "child",
                str(os.getpid()),
                str(theirs.fileno()),
            ]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        self._unpacker: Unpacker[Any] = Unpacker(wire.TO_DRIVER)
        self.seen: list[Any] = []  # what came and was not asked for
        self.tell(own)
        self.take(wire.NodeReady)

    def tell(self, order: wire.Message) -> None:
        self._ours.sendall(pack(order))

    def order(self, run: int, order: wire.RunOrder) -> None:
        self.tell(wire.InRun(run, order))

    def open(self, run: int, run_dir: Path, work: Callable[[], Any], **changes: Any) -> wire.NodeReady:
        self.tell(wire.OpenRun(run, configure(run_dir, work, **changes)))
        return self.take(wire.NodeReady, run)

    def close(self, run: int, over: bool = True) -> None:
        self.tell(wire.CloseRun(run, over))
        self.take(wire.RunClosed, run=run)

    def start(self, run: int, attempt_number: int = 1, ranks: int = 1) -> list[int]:
        """A group of the run; the workers' pids, once they have come to their train function."""
        places = [wire.Place(rank, rank, ranks, 0) for rank in range(ranks)]
        self.order(run, wire.StartWorkers(attempt_number, ranks, 0, None, places))
        started = [self.take(wire.WorkerStarted, run, rank=rank).pid for rank in range(ranks)]
        for rank in range(ranks):
            self.take(wire.WorkerIsReady, run, rank=rank)
        return started

    def take(self, kind: type[M], of: int | None = None, **fields: Any) -> M:
        """The next message of that kind, of that run and with these values, whatever else comes before it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for at, said in enumerate(self.seen):
                run, message = (said.run, said.message) if isinstance(said, wire.OfRun) else (None, said)
                if run == of and isinstance(message, kind) and _has(message, fields):
                    del self.seen[at]
                    return message
            try:
                self._receive(deadline)
            except (TimeoutError, ConnectionError) as error:
                raise AssertionError(f"no {kind.__name__} {fields} of run {of} came: {error}; {self.seen}") from None

    def _receive(self, deadline: float) -> None:
        self._ours.settimeout(max(0.001, deadline - time.monotonic()))
        data = self._ours.recv(1 << 18)
        if not data:
            raise ConnectionError("the agent is gone")
        self.seen += self._unpacker.feed(data)

    def end(self) -> None:
        self._ours.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()


@contextmanager
def agent(run_dir: Path, **changes: Any) -> Iterator[AgentAtWork]:
    at_work = AgentAtWork(configure(run_dir, **changes))
    try:
        yield at_work
    finally:
        at_work.end()


def _has(message: wire.Message, fields: dict[str, Any]) -> bool:
    return all(getattr(message, name) == value for name, value in fields.items())


def is_gone(pid: int) -> bool:
    return processes.state(pid) in ("", "Z", "X")


def wait_until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come to pass"
        time.sleep(0.005)


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
