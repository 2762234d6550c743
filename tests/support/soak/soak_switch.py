"""Machines on a switch: network namespaces of this machine, each at a port whose cable can be cut."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Port:
    name: str
    driver: str
    address: str

    @property
    def command(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Both ways, and nobody is told: no reset, no end of file."""
        ip("link", "set", f"{self.name}p", "down")

    def silence(self) -> None:
        """What the node sends to the driver is lost; what the driver sends still arrives."""
        ip("-n", self.name, "route", "replace", "blackhole", f"{self.driver}/32")

    def fix(self) -> None:
        ip("link", "set", f"{self.name}p", "up")
        unblock = ["ip", "-n", self.name, "route", "delete", "blackhole", f"{self.driver}/32"]
        subprocess.run(unblock, capture_output=True)  # in vain if it was not silenced


@dataclass
class Switch:
    """``number`` tells it from others of this machine."""

    number: int
    ports: list[Port] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"hs{self.number}"

    def add_port(self) -> None:
        network = f"10.{150 + self.number // 256 % 64}.{self.number % 256}"
        port = Port(f"{self.name}n{len(self.ports)}", f"{network}.1", f"{network}.{len(self.ports) + 2}")
        ip("netns", "add", port.name)
        self.ports.append(port)
        ip("link", "add", f"{port.name}p", "type", "veth", "peer", "name", "eth0", "netns", port.name)
        ip("link", "set", f"{port.name}p", "master", self.name, "up")
        ip("-n", port.name, "address", "add", f"{port.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", port.name, "link", "set", device, "up")


@contextmanager
def switch(number: int, ports: int) -> Iterator[Switch]:
    """``CalledProcessError`` or ``FileNotFoundError`` where namespaces cannot be made."""
    made = Switch(number)
    ip("link", "add", made.name, "type", "bridge")
    try:
        ip("address", "add", f"10.{150 + number // 256 % 64}.{number % 256}.1/24", "dev", made.name)
        ip("link", "set", made.name, "up")
        for _ in range(ports):
            made.add_port()
        yield made
    finally:
        for port in made.ports:
            subprocess.run(["ip", "link", "delete", f"{port.name}p"], capture_output=True)
            subprocess.run(["ip", "netns", "delete", port.name], capture_output=True)
        ip("link", "delete", made.name)
