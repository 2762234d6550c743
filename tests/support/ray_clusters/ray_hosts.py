"""Machines of this machine, each with its own network, processes, shared memory and Ray directory, on one switch.

A raylet cannot tell one of them from a real machine: its cable can be cut while it lives on, and its power can go.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from support.soak.soak_switch import Port, switch

GCS_PORT = 6379
SMALL = f"--object-store-memory={80 << 20}"
RAY = str(Path(sys.executable).with_name("ray"))
KNOWN_TO_RAY = (sys.executable, str(Path(__file__).with_name("ray_machines.py")))
PATIENT_RAY = (sys.executable, str(Path(__file__).with_name("patient_ray.py")))
START_WITHIN_S = 180.0
_OWN = "mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray && mount -t tmpfs none /dev/shm && exec tail -f /dev/null"
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


@dataclass
class Host:
    port: Port
    log: IO[bytes]
    env: dict[str, str] = field(default_factory=dict)  # of all that is started on it
    _power: subprocess.Popen[bytes] | None = None
    _init: int = 0

    @property
    def address(self) -> str:
        return self.port.address

    def power_on(self) -> None:
        """Nothing is on its disks in memory."""
        assert self._power is None
        command = [*self.port.command, *_NAMESPACES, "sh", "-c", _OWN]
        self._power = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self._init = _await_child(self._power)

    def power_off(self) -> None:
        """All its processes are gone when this returns."""
        if self._power is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)  # and with it all of its namespace
        self._power.wait(START_WITHIN_S)
        self._power = None

    def command(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self._init}", "--net", "--mount", "--pid", "--", *command]

    def start(self, *command: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*command),
            env={**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONUNBUFFERED": "1", **self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def run(self, *command: str, **env: str) -> str:
        """Its output; it has to end well."""
        process = self.start(*command, **env)
        out, _ = process.communicate(timeout=START_WITHIN_S)
        assert process.returncode == 0, f"{command}: {out}"
        return out

    def start_head(self, *options: str) -> None:
        """No worker is put on it."""
        start = (*PATIENT_RAY, "start", "--head", "--num-cpus=0", SMALL, f"--port={GCS_PORT}")
        self.run(*start, *self._own_address, *options)

    def join(self, head: Host, *options: str) -> None:
        self.run(RAY, "start", f"--address={head.address}:{GCS_PORT}", SMALL, *self._own_address, *options)

    def known_to_ray(self) -> list[str]:
        """Actors and placement groups of ours, on the cluster whose head it is."""
        out = self.run(*KNOWN_TO_RAY, f"{self.address}:{GCS_PORT}")
        known: list[str] = json.loads(out.splitlines()[-1])
        return known

    @property
    def _own_address(self) -> tuple[str, ...]:
        return (f"--node-ip-address={self.address}", "--disable-usage-stats")


def _await_child(process: subprocess.Popen[bytes]) -> int:
    """The first process of its namespace, once the directories there are its own."""
    deadline = time.monotonic() + START_WITHIN_S
    while True:
        for path in glob.glob(f"/proc/{process.pid}/task/*/children"):
            for child in Path(path).read_text().split():
                if Path(f"/proc/{child}/comm").read_text().strip() == "tail":
                    return int(child)
        assert process.poll() is None, "no namespaces"
        assert time.monotonic() < deadline, "no process in the namespaces"
        time.sleep(0.01)


@contextlib.contextmanager
def hosts(count: int, home: Path) -> Iterator[list[Host]]:
    """So many, with power. What they print is in ``home``."""
    with switch(os.getpid() % (64 * 256), count) as made, (home / "hosts.log").open("ab") as log:
        found = [Host(port, log) for port in made.ports]
        try:
            for host in found:
                host.power_on()
            yield found
        finally:
            for host in found:
                host.power_off()
